"""The smallest counter-example of a violation, in the user's names."""

from __future__ import annotations

from dataclasses import dataclass

from tensorlang.errors import Instance, Witness
from tensorlang.ir.expr import to_text
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import evaluate, holds
from tensorlang.polyhedral.legality import TimeSpace, Violation
from tensorlang.polyhedral.statement import Access, Statement

_TRIES = 64


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two instances (time, statement, values of its loops and sizes), and the sizes: as isl orders them, and by name."""

    sizes: list[int]
    bound: dict[str, int]
    source: tuple[list[int], Statement, dict[str, int]]
    sink: tuple[list[int], Statement, dict[str, int]]


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
    pair = _first_that_runs(violation.pairs, space)
    (_, first, first_env), (_, then, then_env) = pair.source, pair.sink
    element = _element(violation.array, first, first_env)
    a, b = instance(first, first_env, space), instance(then, then_env, space)
    common = min(len(a.point), len(b.point)) if first.stage == then.stage else 0
    distance = tuple(y - x for x, y in zip(a.point[:common], b.point[:common], strict=True))
    return Witness(violation.kind, element, a, b, distance, tuple(sorted(pair.bound.items())))


def _first_that_runs(pairs: isl.Map, space: TimeSpace) -> _Pair:
    """The smallest pair whose instances exist: isl does not see conditions with products of loops and sizes."""
    found = first = _located(pairs, space)
    for _ in range(_TRIES):
        ghost = next((time for time, s, values in (found.source, found.sink) if not _runs(s, values)), None)
        if ghost is None:
            return found
        at = _at(space, found.sizes, ghost)
        pairs = pairs.subtract_domain(at).subtract_range(at)
        if pairs.is_empty():
            break
        found = _located(pairs, space)
    return first


def _located(pairs: isl.Map, space: TimeSpace) -> _Pair:
    sizes, source, sink = smallest(pairs)
    bound = sizes_of(space, sizes)
    return _Pair(sizes, bound, (source, *locate(space, source, bound)), (sink, *locate(space, sink, bound)))


def _runs(statement: Statement, values: dict[str, int]) -> bool:
    return all(holds(condition, values) for condition in statement.domain)


def _at(space: TimeSpace, sizes: list[int], time: list[int]) -> isl.Set:
    """One time vector at the given sizes."""
    here = " and ".join(f"{name} = {value}" for name, value in zip(space.namer.parameters, sizes, strict=True))
    return isl.make_set(f"{space.namer.prefix()}{{ [{', '.join(map(str, time))}] : {here or '0 = 0'} }}")


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
