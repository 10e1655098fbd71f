"""Arrays of scope `warp` that no machine code works on: spread over the registers of lanes, read by shuffles.

An element is in a register of the thread that stores it. Which one that is follows from the stores: along one
dimension, or several neighbouring ones taken as one, the digit `index // unit % lanes` is the thread's number. A thread
reads its own elements as they are, and those of others by a shuffle (`ir.shuffle`), to which all lanes come: tests that
not all of them pass move inwards, behind it. This is what TVM calls lower_warp_memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod

from tensorlang.dataclass import dataclass
from tensorlang.errors import TargetError
from tensorlang.ir.expr import Binary, Buffer, Const, Expr, Var, binary, substitute
from tensorlang.ir.simplify import proves, simplify
from tensorlang.ir.spread import Group, Spread, flat_index, group_of
from tensorlang.ir.stmt import (
    INDEX,
    Allocate,
    AsyncCopy,
    AtomicUpdate,
    CallMachine,
    For,
    If,
    Let,
    Stmt,
    Store,
    ThreadReduce,
    children,
)
from tensorlang.ir.stmt import walk as statements
from tensorlang.ir.thread_tags import THREADS
from tensorlang.ir.warp_arrays import WARP, fragments
from tensorlang.lowering.device.exchanges import Around, Exchanges
from tensorlang.lowering.device.ranges import Ranges, inside, range_of
from tensorlang.lowering.passes.full_tile import conjunction

_ME = Var(THREADS[0], INDEX)


def shuffled(code: Stmt, block: Mapping[str, int], ranges: Ranges) -> Stmt:
    """The code of a thread with its own part of each array of scope `warp` that no machine code works on.

    Raises TargetError where the stores do not tell which lane holds an element, and where a read by another lane is no
    shuffle.
    """
    known = fragments(code)
    arrays = [
        s.buffer
        for s in statements(code)
        if isinstance(s, Allocate) and s.buffer.scope == WARP and s.buffer.name not in known
    ]
    if not arrays:
        return code
    group = group_of(arrays[0].name, block)
    stores = {buffer.name: list(_stores(code, buffer.name, ranges, ())) for buffer in arrays}
    spreads = {buffer.name: _spread(buffer, stores[buffer.name], group) for buffer in arrays}
    return Exchanges(spreads, group).visit(code, Around(ranges, varying=frozenset(group.axes)))


@dataclass(frozen=True, slots=True)
class _Stored:
    """A store to an element, with the ranges of variables and the tests around it."""

    index: tuple[Expr, ...]
    ranges: Ranges
    tests: tuple[Expr, ...]


def _stores(stmt: Stmt, name: str, ranges: Ranges, tests: tuple[Expr, ...]) -> Iterator[_Stored]:
    match stmt:
        case Store() if stmt.buffer.name == name:
            yield _Stored(stmt.index, ranges, tests)
        case AtomicUpdate() | AsyncCopy() if stmt.buffer.name == name:
            _refuse_access(name)
        case ThreadReduce() if any(buffer.name == name for buffer, _ in stmt.targets):
            _refuse_access(name)
        case CallMachine():
            return
        case If():
            yield from _stores(stmt.then, name, ranges, (*tests, stmt.cond))
            if stmt.orelse is not None:
                yield from _stores(stmt.orelse, name, ranges, (*tests, ~stmt.cond))
            return
        case For():
            ranges = inside(stmt, ranges)
        case Let():
            ranges = {**ranges, stmt.var.name: range_of(stmt.value, ranges)}
    for child in children(stmt):
        yield from _stores(child, name, ranges, tests)


def _refuse_access(name: str) -> None:
    raise TargetError(
        f"{name} has the scope warp, and is reduced over threads or updated by several; keep it in scope 'shared' or "
        "'local', and copy it (cache_read)"
    )


def _spread(buffer: Buffer, stores: list[_Stored], group: Group) -> Spread:
    """The first way to spread an array such that each store is by the lane that holds the element."""
    extents = tuple(int(extent.value) for extent in buffer.shape if isinstance(extent, Const))
    rank = len(extents)
    for length in range(1, rank + 1):
        for first in range(rank - length + 1):
            unit = _unit(stores, extents, first, first + length)
            if unit is None:
                continue
            whole = -(-prod(extents[first : first + length]) // (unit * group.lanes)) * unit
            shape = (*extents[:first], whole, *extents[first + length :])
            own = replace(buffer, shape=tuple(Const(n, INDEX) for n in shape), scope="local")
            found = Spread(own, first, first + length, unit, group.lanes, extents)
            if all(_by_holder(found, stored, group) for stored in stores):
                return found
    shown = ", ".join(map(str, stores[0].index)) if stores else ""
    raise TargetError(
        f"{buffer.name} has the scope warp, and its stores do not tell which lane holds an element: "
        f"{buffer.name}[{shown}] by lane {group.number} of {group.lanes}; let each lane store its own: split a loop of "
        f"its stage by {group.lanes} and bind the inner part to {THREADS[0]}, or tensorize its stage "
        "(te.intrin('cuda.mma...')), or use scope 'shared'"
    )


def _unit(stores: list[_Stored], extents: tuple[int, ...], first: int, last: int) -> int | None:
    """How far apart in some dimensions the elements are that neighbouring lanes store."""
    found = set()
    for stored in stores:
        here = flat_index(stored.index, extents, first, last, stored.ranges)
        there = substitute(here, {_ME.name: binary("add", _ME, 1)})
        step = simplify(binary("sub", there, here), {**stored.ranges, _ME.name: (None, None)})
        found.add(int(step.value) if isinstance(step, Const) else -1)
    found -= {0}  # one lane alone stores there, which has to be the one that any unit gives
    return None if len(found) > 1 or min(found, default=1) < 1 else min(found, default=1)


def _by_holder(spread: Spread, stored: _Stored, group: Group) -> bool:
    lane, _ = spread.place(stored.index, stored.ranges)
    equal: Expr = binary("eq", lane, group.number)
    if stored.tests:
        equal = Binary("or", ~conjunction(stored.tests), equal, "bool")
    return proves(equal, stored.ranges)
