"""Machine code that goes on after its call: where threads close its groups, and where they have to have waited.

A call only begins such work, as wgmma does. The work of one statement in one iteration is a group, closed right behind
it in iterations too that begin none, so that groups are numbered without counting. Two kinds of dependences end in a
wait: through registers, in front of any other statement that touches what the code writes; and through memory that
threads share, in front of the barrier behind which others overwrite what the code reads. The latter are the pairs for
which barriers are placed, with the distance in iterations that isl finds for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from tensorlang.dataclass import dataclass
from tensorlang.ir.stmt import LoopKind
from tensorlang.ir.thread_tags import is_thread
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.barriers import Address, Join, items
from tensorlang.polyhedral.nest import Loop, Tree, leaves, loops
from tensorlang.schedule.derive.plans import Derived

_FARTHEST = 16
"""Iterations between a read and the write that overwrites it, above which the exact number makes no difference."""


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of a name in a kernel: the statements that begin them, by number, and where they are closed.

    `waits` gives places with the number of groups that may still be under way there.
    """

    name: str
    begun: frozenset[int]
    commits: tuple[Address, ...]
    waits: tuple[tuple[Address, int], ...]


@dataclass(frozen=True, slots=True)
class _Spot:
    """What stands in the uniform loops of a kernel: a statement, a tile of machine code, or a region of threads.

    `group` is that of the machine code which it is all of.
    """

    address: Address
    uniform: tuple[Loop, ...]
    numbers: tuple[int, ...]
    group: str = ""

    @property
    def body(self) -> Address:
        """The body that it stands in."""
        return self.address[:-1]

    @property
    def commit(self) -> int:
        """Where in that body its group is closed."""
        return self.address[-1] + 1


def groups_under_way(
    root: Loop,
    address: Address,
    around: tuple[Loop, ...],
    derived: Derived,
    joins: Sequence[Join],
    barriers: Sequence[Address],
    later: Mapping[str, str],
) -> Iterator[Groups]:
    """Yield the groups of the kernel that begins with a loop; `later` names those of tiles, by their outermost loop.

    Code that stands in one region of threads with other statements is not among them: it waits for itself.
    """
    spots = list(_spots(root.body, address, (*around, root), later))
    for name in dict.fromkeys(spot.group for spot in spots if spot.group):
        begun = [spot for spot in spots if spot.group == name]
        yield _Waits(name, derived, spots, begun, barriers, len(address)).placed(joins)


def _spots(tree: Tree, address: Address, uniform: tuple[Loop, ...], later: Mapping[str, str]) -> Iterator[_Spot]:
    for k, part in enumerate(items(tree)):
        here = (*address, k)
        if isinstance(part, Loop) and not is_thread(part.thread) and part.name not in later:
            yield from _spots(part.body, here, (*uniform, part), later)
            continue
        numbers = tuple(leaves(part))
        tiles = [later[loop.name] for loop in loops(part) if loop.name in later] if len(numbers) == 1 else []
        yield _Spot(here, uniform, numbers, *tiles)


@dataclass(slots=True)
class _Waits:
    """The waits for groups of a name, as far as they are found. `depth` loops are around the kernel's first body."""

    name: str
    derived: Derived
    spots: Sequence[_Spot]
    begun: Sequence[_Spot]
    barriers: Sequence[Address]
    depth: int
    waits: dict[Address, int] = field(default_factory=dict)

    def placed(self, joins: Sequence[Join]) -> Groups:
        """Place all waits: for what comes later in an iteration first, which often serves the next one as well."""
        pairs = [(own, other) for own in self.begun for other in self.spots if self._meet(own, other)]
        for own, other in sorted(pairs, key=lambda pair: pair[0].address > pair[1].address):
            self._before_access(own, other)
        for own in self.begun:
            statement = self.derived.scop.statements[own.numbers[0]]
            for join in joins:
                if join.source.statement is statement:
                    self._before_barrier(own, join)
        begun = frozenset(spot.numbers[0] for spot in self.begun)
        commits = tuple((*spot.body, spot.commit) for spot in self.begun)
        return Groups(self.name, begun, commits, tuple(sorted(self.waits.items())))

    def _meet(self, own: _Spot, other: _Spot) -> bool:
        """Whether another spot touches registers that machine code writes, or writes some that it reads."""
        if own is other:
            return False
        statements = self.derived.scop.statements
        code = statements[own.numbers[0]]
        held = {a.array for a in (*code.writes, *code.reads) if self.derived.plans[a.array].buffer.scope == "warp"}
        made = {a.array for a in code.writes}
        for number in other.numbers:
            writes = {a.array for a in statements[number].writes}
            if held & writes or made & {a.array for a in statements[number].reads}:
                return True
        return False

    def _before_access(self, own: _Spot, other: _Spot) -> None:
        """Wait before a spot that the same thread runs, after machine code in the tree or in later iterations."""
        level = next(k for k, (a, b) in enumerate(zip(own.address, other.address, strict=False)) if a != b)
        place = (*own.address[:level], other.address[level])
        comes_later = other.address[level] > own.address[level]
        if not comes_later and all(loop.kind is LoopKind.BOUND for loop in own.uniform[self.depth - 1 : level]):
            return
        self._need(own, place, self._closed(own, place, 0 if comes_later else 1))

    def _before_barrier(self, own: _Spot, join: Join) -> None:
        """Wait before one of the barriers behind which other threads touch what machine code touched."""
        served = [(self._at_barrier(own, join, b), b) for b in self.barriers if b in join.places]
        pending, place = max(served)
        refilled = self._refilled_early(join, place)
        if refilled is not None:
            pending, place = 0, refilled
        self._need(own, place, pending)

    def _refilled_early(self, join: Join, barrier: Address) -> Address | None:
        """The loop, around a barrier, that fills tiles again before its first iteration, where no group is closed."""
        body = barrier[:-1]
        inside = next(spot for spot in self.spots if spot.address[: len(body)] == body)
        levels = range(self.depth, len(body))
        return next((body[: k + 1] for k in levels if join.needs(barrier, inside.uniform[k])), None)

    def _at_barrier(self, own: _Spot, join: Join, barrier: Address) -> int:
        """How many groups may be under way at a barrier, when it runs for the last time before the access."""
        before = barrier in join.before
        if own.uniform and join.carried == own.uniform[-1].name:
            return self._closed(own, barrier, _distance(join) - (not before))
        return self._closed(own, barrier, 1 if join.carried and before else 0)

    def _closed(self, own: _Spot, place: Address, iterations: int) -> int:
        """How many groups are closed, after that of an iteration, until a place some iterations later."""
        depth = len(own.body)
        if len(place) <= depth or place[:depth] != own.body:
            return 0
        alike = [spot.commit for spot in self.begun if spot.body == own.body]
        return sum(iterations + (c <= place[depth]) - (c <= own.commit) for c in alike)

    def _need(self, own: _Spot, place: Address, pending: int) -> None:
        """Note that at most so many groups may be under way at a place."""
        if not any(self._serves(own, wait, most, place) for wait, most in self.waits.items()):
            self.waits[place] = min(pending, self.waits.get(place, pending))

    def _serves(self, own: _Spot, wait: Address, most: int, place: Address) -> bool:
        """Whether a wait stands on every way from machine code to a place, and is for its group."""
        level = len(wait) - 1
        if wait[:level] != own.address[:level] or wait[level] <= own.address[level]:
            return False
        if place[:level] == wait[:level] and own.address[level] < place[level] < wait[level]:
            return False
        if level == len(own.body):
            return most <= self._closed(own, wait, 0)
        return most == 0 and (len(place) == level + 1 or place[: level + 1] != own.address[: level + 1])


def _distance(join: Join) -> int:
    """After how many iterations of the loop that carries it a pair of accesses meets, at least."""
    source, sink = join.source.statement.loops, join.sink.statement.loops
    first, then = ([f"{letter}{k}" for k in range(len(loops))] for letter, loops in (("a", source), ("b", sink)))
    apart = f"{then[sink.index(join.carried)]} - {first[source.index(join.carried)]}"
    for count in range(1, _FARTHEST):
        near = isl.make_map(f"{{ [{', '.join(first)}] -> [{', '.join(then)}] : {apart} <= {count} }}")
        if not join.pairs.intersect(near).is_empty():
            return count
    return _FARTHEST
