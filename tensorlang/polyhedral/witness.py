"""The smallest counter-example of a violation, in the user's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tensorlang.dataclass import dataclass
from tensorlang.errors import Instance, Witness
from tensorlang.ir.expr import Expr, Load, Var, substitute, to_text, walk
from tensorlang.ir.stmt import INDEX
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import Namer, conditions_text, dims, evaluate, with_sizes
from tensorlang.polyhedral.legality import TimeSpace, Violation
from tensorlang.polyhedral.ordered import shared_prefix
from tensorlang.polyhedral.statement import Access, Statement

Located: TypeAlias = tuple[Statement, dict[str, int]]
_TRIES = 64


def smallest(pairs: isl.Map) -> tuple[list[int], list[int], list[int]]:
    """Return the smallest sizes, then source vector, then sink vector of a non-empty map."""
    return _split(_smallest_sum(_flat(pairs), pairs.dim(isl.DIM.param)), pairs)


def _flat(pairs: isl.Map) -> isl.Set:
    """The pairs as points: sizes, then source vector, then sink vector."""
    wrapped = pairs.wrap().flatten().reset_tuple_id()
    return wrapped.move_dims(isl.DIM.set, 0, isl.DIM.param, 0, wrapped.dim(isl.DIM.param))


def _split(point: list[int], pairs: isl.Map) -> tuple[list[int], list[int], list[int]]:
    """The three parts of a point of `_flat`."""
    sizes = pairs.dim(isl.DIM.param)
    cut = sizes + pairs.dim(isl.DIM.in_)
    return point[:sizes], point[sizes:cut], point[cut:]


def _smallest_sum(points: isl.Set, count: int) -> list[int]:
    """The point with the smallest sum of its first `count` coordinates; of several such, the first."""
    names = [f"x{k}" for k in range(points.dim(isl.DIM.set))]
    total = " + ".join(names[:count]) or "0"
    key = isl.make_map(f"{{ [{', '.join(names)}] -> [{', '.join([total, *names])}] }}")
    return isl.lexicographic_minimum(points.apply(key))[1:]


@dataclass(frozen=True, slots=True)
class Touch:
    """A run of a statement, given by the values of its loops and of the sizes, and one of its accesses."""

    statement: Statement
    values: dict[str, int]
    access: Access

    @property
    def element(self) -> str:
        """What is touched, as text."""
        return element_text(self.access, self.values)

    def is_own(self) -> bool:
        """Whether the element is one that the statement writes."""
        return any(element_text(w, self.values) == self.element for w in self.statement.writes)

    def text(self) -> str:
        """The access in the names of the loops: `A[idx[i] + 1]`."""
        if self.access.index is None:
            return f"all of {self.access.array}"
        prefix = f"{self.statement.stage}."
        short: dict[str, Expr] = {n: Var(n.removeprefix(prefix), INDEX) for n in self.statement.loops}
        return f"{self.access.array}[{', '.join(to_text(substitute(i, short)) for i in self.access.index)}]"


@dataclass(frozen=True, slots=True)
class Clash:
    """The smallest pair that a violation gets wrong, and the accesses by which it depends on each other."""

    violation: Violation
    source: Touch
    sink: Touch
    sizes: dict[str, int]

    def witness(self) -> Witness:
        """The pair in the user's names."""
        space = self.violation.space
        a, b = (instance(t.statement, t.values, space) for t in (self.source, self.sink))
        first, then = self.source.statement, self.sink.statement
        shared = len(shared_prefix(first.axes, then.axes)) if first.stage == then.stage else 0
        distance = tuple(y - x for x, y in zip(a.point[:shared], b.point[:shared], strict=True))
        element = min(self.source.element, self.sink.element, key=_is_unknown)
        if self.differs():
            element = f"{self.source.access.array}[...]"
        return Witness(self.violation.kind, element, a, b, distance, tuple(sorted(self.sizes.items())))

    def differs(self) -> bool:
        """Whether the two touch different elements: isl took one that it cannot tell as any element."""
        elements = {self.source.element, self.sink.element}
        return len(elements) == 2 and not any(map(_is_unknown, elements))

    def unseen(self) -> tuple[Touch, ...]:
        """Those of the two whose element isl cannot tell: it was taken as any element."""
        found = {t.text(): t for t in (self.source, self.sink) if _is_unknown(t.element) or self.differs()}
        return tuple(found.values())

    def hidden_by_data(self) -> tuple[str, ...]:
        """The statements of which isl cannot tell when they run: they count as running always."""
        space = self.violation.space
        both = {t.statement.name: t.statement for t in (self.source, self.sink)}
        return tuple(name for name, s in both.items() if any(map(_reads_memory, s.domain)) and not space.is_visible(s))


def explain(violation: Violation) -> Witness:
    """Return the smallest pair of instances that a violation gets wrong."""
    return _clash(violation).witness()


def _clash(violation: Violation) -> Clash:
    """Return the smallest pair that a violation gets wrong, with the accesses that meet."""
    space = violation.space
    bound, source, sink = smallest_that_runs(violation.pairs, space)
    first, then = locate(space, source, bound), locate(space, sink, bound)
    a, b = _accesses(violation.array, first, then)
    return Clash(violation, a, b, bound)


def smallest_clash(violations: Sequence[Violation]) -> Clash:
    """The clash of the violation that the smallest sizes show; of several such, the first."""
    shown = min(violations, key=lambda v: sum(smallest(v.pairs)[0])) if len(violations) > 1 else violations[0]
    return _clash(shown)


def _reads_memory(condition: Expr) -> bool:
    return any(isinstance(node, Load) for node in walk(condition))


def _accesses(array: str, first: Located, then: Located) -> tuple[Touch, Touch]:
    """The two accesses that meet in an element and of which one writes; at best in one that is known."""
    pairs = [
        (Touch(*first, x), Touch(*then, y))
        for writes in ((True, True), (True, False), (False, True))
        for x in _touching(first[0], array, writes[0])
        for y in _touching(then[0], array, writes[1])
    ]
    known = [(a, b) for a, b in pairs if a.element == b.element and not _is_unknown(a.element)]
    unknown = [(a, b) for a, b in pairs if _is_unknown(a.element) or _is_unknown(b.element)]
    return (known or unknown or pairs)[0]


def _touching(statement: Statement, array: str, writes: bool) -> list[Access]:
    return [a for a in (statement.writes if writes else statement.reads) if a.array == array]


def smallest_that_runs(
    pairs: isl.Map, space: TimeSpace, to_time: bool = True
) -> tuple[dict[str, int], list[int], list[int]]:
    """The smallest sizes at which a pair of instances exists, and that pair.

    isl takes a product of sizes as a size of its own, and does not see one of loops: here the sizes are numbers. When
    no small sizes will do, such products are among the sizes that are returned.
    `to_time`: both sides of `pairs` are time vectors; otherwise only its domain is.
    """
    symbols = _symbols(space)
    if len(symbols) == len(space.namer.parameters) and all(space.is_visible(s) for s in space.scop.statements):
        values, source, sink = smallest(pairs)
        return sizes_of(space, values), source, sink
    rest = _sizes(pairs, symbols)
    for _ in range(_TRIES):
        if rest.is_empty():
            break
        values = _smallest_sum(rest, len(symbols))
        sizes = dict(zip(symbols.values(), values, strict=True))
        existing = _existing(space, sizes)
        real = pairs.intersect_params(_fixed(space, sizes)).intersect_domain(existing)
        real = real.intersect_range(existing) if to_time else real
        if not real.is_empty():
            _, source, sink = smallest(real)
            return sizes, source, sink
        rest = rest.subtract(isl.make_set(f"{{ {values} }}"))
    values, source, sink = _split(isl.sample(_flat(pairs)), pairs)
    return sizes_of(space, values), source, sink


def _symbols(space: TimeSpace) -> dict[str, str]:
    """The sizes that a program's parameters are made of, by the names of their own parameters."""
    made = space.namer.parameters.values()
    found = {node.name: node for expr in made for node in walk(expr) if isinstance(node, Var)}
    return {space.namer.parameter(node): name for name, node in sorted(found.items())}


def _sizes(pairs: isl.Map, symbols: dict[str, str]) -> isl.Set:
    """The values of some parameters at which a map has any pair."""
    known = " and ".join(f"{name} >= 0" for name in symbols) or "0 = 0"
    sizes = isl.make_set(f"[{', '.join(symbols)}] -> {{ : {known} }}")
    found = pairs.params().align_params(sizes.get_space()).intersect(sizes)
    found = found.project_out(isl.DIM.param, len(symbols), found.dim(isl.DIM.param) - len(symbols))
    return found.from_params().move_dims(isl.DIM.set, 0, isl.DIM.param, 0, len(symbols))


def _existing(space: TimeSpace, sizes: dict[str, int]) -> isl.Set:
    """The time vectors at which anything runs, for the given sizes."""
    namer = Namer(space.scop.sizes)
    pieces = []
    for statement in space.scop.statements:
        domain = [with_sizes(condition, sizes) for condition in statement.domain]
        where, _ = conditions_text(domain, dims(statement.loops), namer)
        pieces.append(f"[{space.vector(statement)}] : {where}")
    return isl.make_set(f"{namer.prefix()}{{ {'; '.join(pieces)} }}")


def _fixed(space: TimeSpace, sizes: dict[str, int]) -> isl.Set:
    """Every parameter at its value for some sizes; empty where one has none."""
    try:
        values = {name: evaluate(expr, sizes) for name, expr in space.namer.parameters.items()}
    except KeyError:
        return isl.make_set(f"{space.namer.prefix()}{{ : 0 = 1 }}")
    here = " and ".join(f"{name} = {value}" for name, value in values.items()) or "0 = 0"
    return isl.make_set(f"{space.namer.prefix()}{{ : {here} }}")


def sizes_of(space: TimeSpace, values: list[int]) -> dict[str, int]:
    """Symbolic sizes by their text."""
    return {to_text(expr): value for expr, value in zip(space.namer.parameters.values(), values, strict=True)}


def locate(space: TimeSpace, time: list[int], sizes: dict[str, int]) -> Located:
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


def _is_unknown(element: str) -> bool:
    """Whether the text of an element leaves open which one it is."""
    return element.endswith("[...]")


def element_text(access: Access, values: dict[str, int]) -> str:
    """`C[0, 1]`: the element that an access touches at a point."""
    if access.index is None:
        return f"{access.array}[...]"
    try:
        return f"{access.array}[{', '.join(str(evaluate(i, values)) for i in access.index)}]"
    except KeyError:
        return f"{access.array}[...]"
