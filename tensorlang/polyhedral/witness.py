"""The smallest counter-example of a violation, in the user's names."""

from __future__ import annotations

from tensorlang.errors import Instance, Witness
from tensorlang.ir.expr import Const, Expr, substitute, to_text
from tensorlang.ir.stmt import INDEX
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import Namer, conditions_text, dims, evaluate
from tensorlang.polyhedral.legality import TimeSpace, Violation
from tensorlang.polyhedral.statement import Access, Statement

_TRIES = 64


def smallest(pairs: isl.Map) -> tuple[list[int], list[int], list[int]]:
    """Return the smallest sizes, then source vector, then sink vector of a non-empty map."""
    wrapped = pairs.wrap().flatten().reset_tuple_id()
    sizes = wrapped.dim(isl.DIM.param)
    wrapped = wrapped.move_dims(isl.DIM.set, 0, isl.DIM.param, 0, sizes)
    total = wrapped.dim(isl.DIM.set)
    names = [f"x{k}" for k in range(total)]
    key = isl.make_map(f"{{ [{', '.join(names)}] -> [{' + '.join(names[:sizes]) or '0'}, {', '.join(names)}] }}")
    point = wrapped.apply(key).lexmin().sample_point()
    values = [isl.number(point.get_coordinate_val(isl.DIM.set, k + 1)) for k in range(total)]
    cut = sizes + pairs.dim(isl.DIM.in_)
    return values[:sizes], values[sizes:cut], values[cut:]


def explain(violation: Violation) -> Witness:
    """Return the smallest pair of instances that a violation gets wrong."""
    space = violation.space
    sizes, source, sink = smallest_that_runs(violation.pairs, space)
    bound = sizes_of(space, sizes)
    first, first_env = locate(space, source, bound)
    then, then_env = locate(space, sink, bound)
    element = _element(violation.array, first, first_env)
    a, b = instance(first, first_env, space), instance(then, then_env, space)
    common = min(len(a.point), len(b.point)) if first.stage == then.stage else 0
    distance = tuple(y - x for x, y in zip(a.point[:common], b.point[:common], strict=True))
    return Witness(violation.kind, element, a, b, distance, tuple(sorted(bound.items())))


def smallest_that_runs(
    pairs: isl.Map, space: TimeSpace, to_time: bool = True
) -> tuple[list[int], list[int], list[int]]:
    """The smallest pair whose instances exist: isl sees products of loops and sizes only once the sizes are numbers.

    `to_time`: both sides of `pairs` are time vectors; otherwise only its domain is.
    """
    if all(space.is_visible(s) for s in space.scop.statements):
        return smallest(pairs)
    rest = pairs
    for _ in range(_TRIES):
        found = smallest(rest)
        existing = _existing(space, sizes_of(space, found[0]))
        here = _fixed(space, found[0])
        real = rest.intersect_params(here).intersect_domain(existing)
        real = real.intersect_range(existing) if to_time else real
        if not real.is_empty():
            return smallest(real)
        rest = rest.intersect_params(here.complement())
        if rest.is_empty():
            break
    return smallest(pairs)


def _existing(space: TimeSpace, sizes: dict[str, int]) -> isl.Set:
    """The time vectors at which anything runs, for the given sizes."""
    values: dict[str, Expr] = {name: Const(value, INDEX) for name, value in sizes.items()}
    namer = Namer(space.scop.sizes)
    pieces = []
    for statement in space.scop.statements:
        domain = [substitute(condition, values) for condition in statement.domain]
        where, _ = conditions_text(domain, dims(statement.loops), namer)
        pieces.append(f"[{space.vector(statement)}] : {where}")
    return isl.make_set(f"{namer.prefix()}{{ {'; '.join(pieces)} }}")


def _fixed(space: TimeSpace, sizes: list[int]) -> isl.Set:
    here = " and ".join(f"{name} = {value}" for name, value in zip(space.namer.parameters, sizes, strict=True))
    return isl.make_set(f"{space.namer.prefix()}{{ : {here} }}")


def sizes_of(space: TimeSpace, values: list[int]) -> dict[str, int]:
    """Symbolic sizes by their text."""
    return {to_text(expr): value for expr, value in zip(space.namer.parameters.values(), values, strict=True)}


def locate(space: TimeSpace, time: list[int], sizes: dict[str, int]) -> tuple[Statement, dict[str, int]]:
    """Return the statement that runs at a time vector, and the values of its loops."""
    for statement in space.scop.statements:
        vector = space.vectors[statement.name] + (0,) * (space.length - len(space.vectors[statement.name]))
        if all(p == t for p, t in zip(vector, time, strict=True) if isinstance(p, int)):
            loops = {p: t for p, t in zip(vector, time, strict=True) if isinstance(p, str)}
            return statement, loops | sizes
    raise LookupError(f"no statement runs at {time}")


def instance(statement: Statement, values: dict[str, int], space: TimeSpace) -> Instance:
    """Return an instance in the stage's own axes (in its loops, where those are not affine), with its time vector."""
    try:
        point = tuple(evaluate(e, values) for _, e in statement.point)
    except KeyError:
        point = tuple(values[name] for name in statement.loops)
    time = tuple(values[p] if isinstance(p, str) else p for p in statement.time)
    return Instance(statement.name, point, time)


def _element(array: str, statement: Statement, values: dict[str, int]) -> str:
    access = next(w for w in statement.writes if w.array == array)
    return element_text(access, values)


def element_text(access: Access, values: dict[str, int]) -> str:
    """`C[0, 1]`: the element that an access touches at a point."""
    if access.index is None:
        return f"{access.array}[...]"
    try:
        return f"{access.array}[{', '.join(str(evaluate(i, values)) for i in access.index)}]"
    except KeyError:
        return f"{access.array}[...]"
