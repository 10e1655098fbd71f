"""Whether dependences run forward in time, told for two statements at a time.

The times of two statements agree but for the loops around both, until a static position decides: these few loops are
compared, and no time vectors are made. A dependence that is not proven here may hold all the same; `legality` decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import Namer, dims
from tensorlang.polyhedral.declared import Pair
from tensorlang.polyhedral.rows import NotLinear, Rows
from tensorlang.polyhedral.statement import Access, Scop, Statement

Touch = tuple[Statement, Access]


class Pairwise:
    """The statements of a scop over their own loops; what was made for one dependence is kept for the next."""

    def __init__(self, scop: Scop) -> None:
        self.scop = scop
        self.namer = Namer(scop.sizes)
        self.arrays = {a.name: a for a in scop.arrays}
        self.by_source: dict[tuple[str, str], list[Statement]] = {}
        for s in scop.statements:
            if s.source:
                self.by_source.setdefault((s.stage, s.source), []).append(s)
        self._points: dict[tuple[object, ...], isl.Map] = {}
        self._touched: dict[tuple[str, int], isl.Map] = {}

    def keeps(self, stage: str, pairs: Iterable[Pair], either: bool) -> bool:
        """Whether pairs of declared instances are in order; with `either`, in any order but not at once."""
        return not any(True for _ in self.unsure(stage, pairs, either))

    def unsure(self, stage: str, pairs: Iterable[Pair], either: bool) -> Iterator[Pair]:
        """Yield the pairs of declared instances that are not proven to be in order."""
        unordered = self._unordered(stage in self.scop.atomic and either, either)
        for pair in pairs:
            sources, sinks = (self.by_source.get((stage, name), ()) for name in (pair.source, pair.sink))
            if any(not self._keeps(pair, a, b, unordered, either) for a in sources for b in sinks):
                yield pair

    def _keeps(self, pair: Pair, a: Statement, b: Statement, unordered: frozenset[str], either: bool) -> bool:
        if _is_decided(a, b, unordered, either):
            return True
        try:
            moved = self._point(a).apply_range(pair.pairs).apply_range(self._point(b).reverse())
        except NotLinear:
            return False
        return _in_order(moved, a, b, unordered, either)

    def keeps_accesses(self, sources: Sequence[Touch], sinks: Sequence[Touch], either: bool, atomic: bool) -> bool:
        """Whether accesses that meet in an element are in order; with `either`, in any order but not at once."""
        unordered = self._unordered(atomic, either)
        for a, written in _by_statement(sources):
            for b, read in _by_statement(sinks):
                if _is_decided(a, b, unordered, either):
                    continue
                try:
                    pairs = self._touches(a, written).apply_range(self._touches(b, read).reverse())
                except NotLinear:
                    return False
                if not _in_order(pairs, a, b, unordered, either):
                    return False
        return True

    def covers(self, writers: Sequence[Touch], reader: Touch) -> bool:
        """Whether every element of an access is surely written."""
        if not writers:
            return False
        try:
            read = self._touches(reader[0], [reader[1]]).range()
            return bool(read.is_subset(isl.union_of([self._touches(s, [w]).range() for s, w in writers])))
        except NotLinear:
            return False

    def _unordered(self, lanes_only: bool, of_reduction: bool) -> frozenset[str]:
        lanes = frozenset(n for s in self.scop.statements for n in s.lanes)
        if lanes_only:
            return lanes
        return lanes | (self.scop.unordered - self.scop.gathered if of_reduction else self.scop.unordered)

    def _point(self, statement: Statement) -> isl.Map:
        """The loops of a statement -> the instance that it is in the program as declared."""
        values = [value for _, value in statement.point]
        key = statement.loops, id(statement.placing), *map(id, values)  # statements of one nest share these
        if key not in self._points:
            rows = Rows(dims(statement.loops), self.namer)
            axes = [f"a{k}" for k in range(len(values))]
            for axis, value in zip(axes, values, strict=True):
                rows.equate(axis, _seen(rows.form(value)))
            rows.require(statement.placing)
            self._points[key] = rows.make(list(rows.names.values()), axes)
        return isl.named(self._points[key], statement.source)

    def _touches(self, statement: Statement, accesses: Sequence[Access]) -> isl.Map:
        """The loops of a statement -> the elements that it touches."""
        made = []
        for access in accesses:
            key = statement.name, id(access)
            if key not in self._touched:
                self._touched[key] = self._element(statement, access)
            made.append(self._touched[key])
        return isl.union_of(made)

    def _element(self, statement: Statement, access: Access) -> isl.Map:
        rows = Rows(dims(statement.loops), self.namer)
        rows.require(statement.domain)
        rows.require(access.conditions)
        shape = self.arrays[access.array].shape
        lead = len(access.version)
        element = [f"e{k}" for k in range(lead + len(shape))]
        for dim, loop in zip(element, access.version, strict=False):
            rows.equate(dim, {rows.names[loop]: 1})
        for k, (dim, size) in enumerate(zip(element[lead:], shape, strict=True)):
            value = None if access.index is None else rows.form(access.index[k])
            if value is None:
                rows.bound(dim, _seen(rows.form(size)))
            else:
                rows.equate(dim, value)
        rows.nonnegative_sizes()
        return rows.make(list(rows.names.values()), element)


def _seen(row: dict[str, int] | None) -> dict[str, int]:
    if row is None:
        raise NotLinear
    return row


def _by_statement(touches: Sequence[Touch]) -> list[tuple[Statement, list[Access]]]:
    found: dict[str, tuple[Statement, list[Access]]] = {}
    for s, access in touches:
        found.setdefault(s.name, (s, []))[1].append(access)
    return list(found.values())


def _around(a: Statement, b: Statement) -> tuple[list[str], int]:
    """The loops whose iterations tell two statements apart, in order; below 0: then `a` comes first anyway."""
    loops: list[str] = []
    for x, y in zip(a.time, b.time, strict=False):
        if x != y:
            return loops, x - y if isinstance(x, int) and isinstance(y, int) else 1
        if isinstance(x, str):
            loops.append(x)
    return loops, 0


def _is_decided(a: Statement, b: Statement, unordered: frozenset[str], either: bool) -> bool:
    """Whether the places of two statements alone keep an order."""
    loops, after = _around(a, b)
    return not unordered.intersection(loops) if either else after < 0 and not loops


def _in_order(pairs: isl.Map, a: Statement, b: Statement, unordered: frozenset[str], either: bool) -> bool:
    """Whether pairs of loop values are in order; with `either`, whether none of them may run at once."""
    loops, after = _around(a, b)
    for loop in loops:
        places = isl.DIM.in_, a.loops.index(loop), isl.DIM.out, b.loops.index(loop)
        # Just inside the lanes of a vector, one statement runs in all of them before the next one does.
        in_turn = loop == loops[-1] and loop in a.lanes and (after < 0 or (either and after > 0))
        at_once = loop in unordered and not in_turn
        if (at_once or not either) and not pairs.order_gt(*places).is_empty():
            return False
        if at_once and not pairs.order_lt(*places).is_empty():
            return False
        pairs = pairs.equate(*places)
        if pairs.plain_is_empty():
            return True
    return either or after < 0 or bool(pairs.is_empty())
