"""Dependences in the words of the program: from which statement to which, and how far apart in its axes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from tensorlang.dataclass import dataclass
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import dims, index_text
from tensorlang.polyhedral.declared import Family, nearest
from tensorlang.polyhedral.legality import Dependences, TimeSpace, dependences
from tensorlang.polyhedral.ordered import shared_prefix
from tensorlang.polyhedral.statement import Access, Role, Scop, Statement

Span: TypeAlias = tuple[int | None, int | None]  # least and greatest; None: no bound, whatever the sizes


@dataclass(frozen=True, slots=True)
class Distance:
    """A dependence between two statements; `spans` holds, per axis that both have, how far the sink is from the source.

    Where a source has many sinks, the nearest counts.

    Kind is flow, anti, output or reduction.
    """

    kind: str
    array: str
    source: str
    sink: str
    axes: tuple[str, ...]
    spans: tuple[Span, ...]

    def text(self) -> str:
        """`(1, 0)`, `(1, -1..1)`, `(0, 1..)`; empty when the statements share no axis."""
        return f"({', '.join(map(_span_text, self.spans))})" if self.spans else ""


def _span_text(span: Span) -> str:
    """`1`, `-1..1`, `1..`, `*`."""
    low, high = span
    if low is None and high is None:
        return "*"
    if low == high:
        return str(low)
    return f"{'' if low is None else low}..{'' if high is None else high}"


def distances(scop: Scop) -> list[Distance]:
    """Return every dependence of a scop between two statements that has an instance, reductions included."""
    space = TimeSpace(scop)
    arrays = {a.name: a for a in scop.arrays}
    ordered: list[Distance] = []
    for stage, known in scop.declared:
        points = {s.source: s.axes for s in scop.statements if s.stage == stage}
        for near in nearest(known.op, scop.sizes, known.strict, known.facts):
            for pairs in isl.maps_of(near.pairs):
                ordered += _declared(stage, near, pairs, points)
    found: dict[tuple[str, str, str, str], Distance] = {}
    for family in (*dependences(scop), *_updates(scop)):
        for source, sink in _statement_pairs(family):
            key = (family.kind, family.array, source.name, sink.name)
            if key in found:
                continue
            one, other = _of(family.sources, source), _of(family.sinks, sink)
            pairs = Dependences(family.kind, family.array, one, other, family.ordered).pairs(space, arrays)
            if family.kind == "reduction":
                pairs = pairs.intersect(isl.lex_lt(space.length))
            if not pairs.is_empty():
                found[key] = Distance(*key, *_spans(pairs, source, sink, space))
    return [*dict.fromkeys(ordered), *found.values()]


def _declared(stage: str, family: Family, pairs: isl.Map, points: dict[str, tuple[str, ...]]) -> Iterator[Distance]:
    """A dependence of a hybrid operation between two of its statements, if both still run."""
    source, sink = isl.names_of(pairs)
    if source in points and sink in points:
        names = shared_prefix(points[source], points[sink])
        ends = f"{stage}.{source}", f"{stage}.{sink}"
        yield Distance(family.kind, family.array, *ends, names, _apart(pairs, len(names)))


def _apart(pairs: isl.Map, axes: int) -> tuple[Span, ...]:
    """How far sinks are from their sources in the first axes of both."""
    ends = [pairs.dim(isl.DIM.in_), pairs.dim(isl.DIM.out)]
    a, b = ([f"{v}{k}" for k in range(n)] for v, n in zip("ab", ends, strict=True))
    first = isl.make_map(f"{{ [{', '.join(a)}] -> [{', '.join(a[:axes])}] }}")
    then = isl.make_map(f"{{ [{', '.join(b)}] -> [{', '.join(b[:axes])}] }}")
    apart = isl.unnamed(pairs).apply_domain(first).apply_range(then).deltas()
    return tuple((_bound(apart.dim_min_val(k)), _bound(apart.dim_max_val(k))) for k in range(axes))


def _updates(scop: Scop) -> Iterator[Dependences]:
    """Every reduction, also where its updates are ordered by the loops."""
    families: dict[str, list[tuple[Statement, Access]]] = {}
    for s in scop.statements:
        for w in s.writes:
            if s.role is Role.UPDATE and not w.origin:
                families.setdefault(w.array, []).append((s, w))
    for array, touches in families.items():
        yield Dependences("reduction", array, tuple(touches), tuple(touches))


def _statement_pairs(family: Dependences) -> Iterator[tuple[Statement, Statement]]:
    for source in {s.name: s for s, _ in family.sources}.values():
        for sink in {s.name: s for s, _ in family.sinks}.values():
            yield source, sink


def _of(touches: tuple[tuple[Statement, Access], ...], statement: Statement) -> tuple[tuple[Statement, Access], ...]:
    return tuple(t for t in touches if t[0].name == statement.name)


def _spans(
    pairs: isl.Map, source: Statement, sink: Statement, space: TimeSpace
) -> tuple[tuple[str, ...], tuple[Span, ...]]:
    """The axes that two statements of one stage share, and how far apart they are in them."""
    names = shared_prefix(source.axes, sink.axes) if source.stage == sink.stage else ()
    if not names:
        return (), ()
    apart = pairs.apply_domain(_to_axes(source, names, space)).apply_range(_to_axes(sink, names, space)).deltas()
    spans = []
    for k in range(len(names)):
        spans.append((_bound(apart.dim_min_val(k)), _bound(apart.dim_max_val(k))))
    return names, tuple(spans)


def _to_axes(statement: Statement, axes: tuple[str, ...], space: TimeSpace) -> isl.Map:
    names, point = dims(statement.loops), dict(statement.point)
    values = [index_text(point[a], names, space.namer) for a in axes]
    texts = [v if v is not None else f"u{k}" for k, v in enumerate(values)]
    return space.make(f"[{space.vector(statement)}] -> [{', '.join(texts)}] : {space.domains[statement.name]}")


def _bound(value: isl.PwAff) -> int | None:
    return isl.number(value) if value.is_int() else None
