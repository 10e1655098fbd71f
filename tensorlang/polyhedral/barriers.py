"""Barriers: where threads of a block have to wait for each other, so that no access meets another thread's too early.

The order of the tree is legal already: of two accesses to one cell of memory, of which one writes, the first comes
first in the tree's order. If one thread runs both, nothing more is needed. If two threads may, a barrier has to stand
somewhere between. Such pairs come from the same domains and accesses as the proof of legality. Each pair allows some
places; the places chosen let every pair have one, at the least cost, counted in barriers that run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import combinations
from typing import TypeAlias

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Expr, Var, binary
from tensorlang.ir.stmt import INDEX, LoopKind
from tensorlang.ir.thread_tags import is_block
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import Namer, dims
from tensorlang.polyhedral.digits import joined, loop_ranges
from tensorlang.polyhedral.nest import Leaf, Loop, Tree, sequence
from tensorlang.polyhedral.nest import Sequence as Branches
from tensorlang.polyhedral.rows import NotLinear, Row, Rows
from tensorlang.polyhedral.statement import Statement

Touched: TypeAlias = tuple[isl.Map, isl.Map]
"""The loops of an access -> its cell, and -> its thread."""
Address: TypeAlias = tuple[int, ...]
"""Which item of the body at each level, from the root; a place is such an address, before the item it ends in."""

_MOST_EXACT = 12  # places among which every choice is tried
_USUAL = 16  # iterations of a loop of unknown length


@dataclass(frozen=True, slots=True)
class Cells:
    """An access to memory that threads share: `cell` is its place in the array; an index that is None may be any.

    `threads` are the coordinates of the thread that makes it, None along an axis whose threads make it together;
    `blocks` the loops over blocks around.
    """

    statement: Statement
    array: str
    cell: tuple[Expr | None, ...]
    shape: tuple[Expr, ...]
    conditions: tuple[Expr, ...]
    threads: tuple[Expr | None, ...]
    blocks: tuple[str, ...]
    is_write: bool


@dataclass(frozen=True, slots=True)
class Place:
    """Where a kernel's accesses are: `uniform` is the loop at each level outside of the regions of threads."""

    address: Address
    uniform: tuple[Loop, ...]
    accesses: tuple[Cells, ...]


@dataclass(frozen=True, slots=True)
class Join:
    """Two accesses to one cell by two threads, and the places where a barrier between them may stand.

    The places of `before` come before the sink in its own iterations, the others after the source in its. `namer` knows
    the parameters of `pairs`.
    """

    source: Cells
    sink: Cells
    carried: str
    places: frozenset[Address]
    pairs: isl.Map
    before: frozenset[Address] = frozenset()
    namer: Namer = field(default_factory=lambda: Namer(frozenset()))

    def needs(self, place: Address, loop: Loop) -> bool:
        """Whether a barrier has to stand at one of its places in iterations before the first one of a loop.

        There, tiles are filled that later iterations read.
        """
        end, dim = (self.sink, isl.DIM.out) if place in self.before else (self.source, isl.DIM.in_)
        if end.statement.ahead != loop.name:
            return False
        rows = Rows(dims(end.statement.loops), Namer(frozenset()))
        rows.require([binary("lt", Var(loop.name, INDEX), loop.lower)])
        early = rows.make(list(rows.names.values()), []).domain() if rows.exact else None
        if early is None:
            return True
        pairs = self.pairs
        return not (pairs.intersect_range(early) if dim == isl.DIM.out else pairs.intersect_domain(early)).is_empty()


@dataclass(slots=True)
class Joins:
    """Which accesses of a kernel meet in a cell across threads; maps are made once for each access."""

    sizes: frozenset[str]
    namer: Namer = field(init=False)
    _made: dict[int, tuple[Cells, isl.Map, isl.Map]] = field(default_factory=dict)
    _wide: dict[int, tuple[Cells, Touched]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.namer = Namer(self.sizes)

    def all(self, places: Sequence[Place], levels: Mapping[Address, int]) -> Iterator[Join]:
        """Yield every pair that needs a barrier; `levels` gives the number of items of each body."""
        for first in places:
            for then in places:
                for source in first.accesses:
                    for sink in then.accesses:
                        if source.array == sink.array and (source.is_write or sink.is_write):
                            yield from self._between(first, then, source, sink, levels)

    def _between(
        self, first: Place, then: Place, source: Cells, sink: Cells, levels: Mapping[Address, int]
    ) -> Iterator[Join]:
        shared = _shared(first, then)
        loops = [loop.name for loop in first.uniform[:shared]]
        here = shared < len(first.address) and shared < len(then.address)
        if here and first.address[shared] < then.address[shared]:
            pairs = self._pairs(source, sink, loops, "")
            if not pairs.is_empty():
                between = {
                    (*first.address[:shared], k) for k in range(first.address[shared] + 1, then.address[shared] + 1)
                }
                ends = _before(then, shared + 1) | between
                yield Join(
                    source,
                    sink,
                    "",
                    frozenset(ends | _after(first, shared + 1, levels)),
                    pairs,
                    frozenset(ends),
                    self.namer,
                )
        for depth, loop in enumerate(loops):
            if is_block(first.uniform[depth].thread) or not any(
                outer.kind is LoopKind.BOUND for outer in first.uniform[:depth]
            ):
                continue  # iterations of the host are launches of their own
            pairs = self._pairs(source, sink, loops[:depth], loop)
            if not pairs.is_empty():
                ends = _before(then, depth + 1)
                yield Join(
                    source,
                    sink,
                    loop,
                    frozenset(ends | _after(first, depth + 1, levels)),
                    pairs,
                    frozenset(ends),
                    self.namer,
                )

    def _pairs(self, source: Cells, sink: Cells, equal: Sequence[str], carried: str) -> isl.Map:
        """Pairs of instances that touch one cell in one block, from two threads, the first one first."""
        if source is sink:
            wider = self._wider(source)
            again = self._met(source, sink, wider, wider, equal, carried)
            if again.is_empty():
                return again
        (_, a, who), (_, b, whom) = self._maps(source), self._maps(sink)
        return self._met(source, sink, (a, who), (b, whom), equal, carried)

    def _met(
        self, source: Cells, sink: Cells, first: Touched, then: Touched, equal: Sequence[str], carried: str
    ) -> isl.Map:
        """The pairs, by the cells and threads of both accesses."""
        (a, who), (b, whom) = first, then
        pairs = a.apply_range(b.reverse())
        blocks = (loop for loop in source.blocks if loop in sink.blocks)
        for loop in dict.fromkeys((*blocks, *equal)):
            pairs = pairs.equate(*_ends(source, sink, loop))
        if carried:
            pairs = pairs.intersect(pairs.order_lt(*_ends(source, sink, carried)))
        if pairs.is_empty():
            return pairs
        return pairs.intersect(who.apply_range(_different(len(source.threads))).apply_range(whom.reverse()))

    def _maps(self, access: Cells) -> tuple[Cells, isl.Map, isl.Map]:
        """The loops of an access -> its cell, and -> its thread."""
        key = id(access)
        if key not in self._made:
            self._made[key] = (access, self._cell(access), self._thread(access))
        return self._made[key]

    def _wider(self, access: Cells) -> Touched:
        """As `_maps`, for more instances than there are, but in numbers that are found to differ at once."""
        if id(access) not in self._wide:
            statement = access.statement
            rows = Rows(dims(statement.loops), self.namer)
            rows.require(statement.domain[: 2 * len(statement.loops)])
            cell = joined(access.cell, loop_ranges(statement))
            names = [f"e{k}" for k in range(len(cell))]
            for dim, value in zip(names, cell, strict=True):
                row = _seen(rows, value)
                if row is not None:
                    rows.equate(dim, row)
            rows.nonnegative_sizes()
            made = rows.make(list(rows.names.values()), names)
            self._wide[id(access)] = (access, (made, self._thread(access)))
        return self._wide[id(access)][1]

    def _cell(self, access: Cells) -> isl.Map:
        rows = Rows(dims(access.statement.loops), self.namer)
        rows.require((*access.statement.domain, *access.conditions))
        names = [f"e{k}" for k in range(len(access.cell))]
        for dim, value, size in zip(names, access.cell, access.shape, strict=True):
            row = _seen(rows, value)
            if row is not None:
                rows.equate(dim, row)
            elif (whole := rows.form(size)) is not None:
                rows.bound(dim, whole)
        rows.nonnegative_sizes()
        return rows.make(list(rows.names.values()), names)

    def _thread(self, access: Cells) -> isl.Map:
        rows = Rows(dims(access.statement.loops), self.namer)
        names = [f"t{k}" for k in range(len(access.threads))]
        for dim, value in zip(names, access.threads, strict=True):
            row = None if value is None else rows.form(value)
            if row is not None:
                rows.equate(dim, row)
        return rows.make(list(rows.names.values()), names)


def _seen(rows: Rows, value: Expr | None) -> Row | None:
    try:
        return None if value is None else rows.form(value)
    except NotLinear:
        return None


def _shared(first: Place, then: Place) -> int:
    """How many levels two places have in common: uniform loops around both."""
    count = 0
    for k, (a, b) in enumerate(zip(first.uniform, then.uniform, strict=False)):
        if a is not b or first.address[k] != then.address[k]:
            break
        count += 1
    return count


def _after(place: Place, begin: int, levels: Mapping[Address, int]) -> set[Address]:
    """The places that come after a statement in the same iterations, in the bodies from a level on."""
    found = set()
    for level in range(begin, len(place.address)):
        body = place.address[:level]
        found |= {(*body, k) for k in range(place.address[level] + 1, levels[body] + 1)}
    return found


def _before(place: Place, begin: int) -> set[Address]:
    """The places that come before a statement in the same iterations, in the bodies from a level on."""
    found = set()
    for level in range(begin, len(place.address)):
        found |= {(*place.address[:level], k) for k in range(place.address[level] + 1)}
    return found


def _ends(source: Cells, sink: Cells, loop: str) -> tuple[isl.DIM, int, isl.DIM, int]:
    return isl.DIM.in_, source.statement.loops.index(loop), isl.DIM.out, sink.statement.loops.index(loop)


def _different(rank: int) -> isl.Map:
    """A thread -> every other one."""
    a, b = [f"a{k}" for k in range(rank)], [f"b{k}" for k in range(rank)]
    where = " or ".join(f"{x} != {y}" for x, y in zip(a, b, strict=True)) or "0 = 1"
    return isl.make_map(f"{{ [{', '.join(a)}] -> [{', '.join(b)}] : {where} }}")


def chosen(joins: Sequence[Join], costs: Mapping[Address, int]) -> list[Address]:
    """The places of least cost such that every pair has one of its own places among them.

    Of several that cost the same the first; with many places a good choice instead of the best.
    """
    needs = _minimal([j.places for j in joins])
    if not needs:
        return []
    candidates = sorted({p for need in needs for p in need}, key=lambda p: (costs[p], p))
    telling: dict[frozenset[int], Address] = {}
    for place in candidates:  # of the places that serve the same pairs the cheapest will do
        telling.setdefault(frozenset(k for k, need in enumerate(needs) if place in need), place)
    places = list(telling.values())
    if len(places) > _MOST_EXACT:
        return sorted(_greedy(needs, places, costs))
    every = (list(c) for n in range(1, len(places) + 1) for c in combinations(places, n))
    return min((c for c in every if _serves(c, needs)), key=lambda c: (sum(costs[p] for p in c), len(c), sorted(c)))


def _serves(places: Sequence[Address], needs: Sequence[frozenset[Address]]) -> bool:
    return all(not need.isdisjoint(places) for need in needs)


def _minimal(needs: Sequence[frozenset[Address]]) -> list[frozenset[Address]]:
    """The needs that are not met whenever another one is."""
    distinct = list(dict.fromkeys(needs))
    return [need for need in distinct if not any(other < need for other in distinct)]


def _greedy(
    needs: Sequence[frozenset[Address]], places: Sequence[Address], costs: Mapping[Address, int]
) -> Iterator[Address]:
    left = list(needs)
    while left:
        best = min(places, key=lambda p: (costs[p] / max(1e-9, sum(p in need for need in left)), p))
        yield best
        left = [need for need in left if best not in need]


def items(tree: Tree) -> tuple[Tree, ...]:
    """What stands in a body, one after the other."""
    return tree.children if isinstance(tree, Branches) else (tree,)


def inserted(tree: Tree, leaves: Mapping[Address, Sequence[int]], address: Address = ()) -> Tree:
    """The tree with further statements at some places, in order."""
    made: list[Tree] = []
    body = items(tree)
    for k in range(len(body) + 1):
        here = (*address, k)
        made += [Leaf(number) for number in leaves.get(here, ())]
        if k == len(body):
            continue
        child = body[k]
        if isinstance(child, Loop) and any(place[: len(here)] == here for place in leaves if len(place) > len(here)):
            child = replace(child, body=inserted(child.body, leaves, here))
        made.append(child)
    return sequence(made)


def iterations(extents: Sequence[int | None]) -> int:
    """How often a body runs, about."""
    count = 1
    for extent in extents:
        count *= _USUAL if extent is None else max(1, extent)
    return count
