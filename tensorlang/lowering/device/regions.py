"""Regions of threads become statements that every thread runs, under a test that it is one of the region's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.errors import InternalError
from tensorlang.ir.loops import with_value
from tensorlang.ir.stmt import (
    Allocate,
    AsyncCommit,
    AsyncWait,
    Barrier,
    CallMachine,
    Combiner,
    For,
    If,
    Let,
    MachineCode,
    MachineCommit,
    MachineWait,
    Prefetch,
    Seq,
    Stmt,
    children,
    map_children,
    walk,
)
from tensorlang.ir.warp_arrays import WARP, lane_axes
from tensorlang.lowering.device.arrays import local_arrays, read, used, written
from tensorlang.lowering.device.lanes import serial
from tensorlang.lowering.device.ranges import Ranges, inside, range_of
from tensorlang.lowering.device.reduce import Reduction, reduces
from tensorlang.lowering.device.threads import (
    ThreadLoop,
    first_of,
    is_thread_loop,
    thread_loop,
    thread_tags,
)
from tensorlang.lowering.passes.full_tile import conjunction

_TOGETHER = (Barrier, AsyncCommit, AsyncWait, MachineCommit, MachineWait)
"""Statements that each thread of a block comes to."""


def block_extents(stmt: Stmt, ranges: Ranges) -> dict[str, int]:
    """The threads of a block along each axis that loops are bound to: as many as its longest loop has iterations."""
    found: dict[str, int] = {}
    for loop in thread_loops(stmt, ranges):
        found[loop.tag] = max(loop.extent, found.get(loop.tag, 1))
    return found


def thread_loops(stmt: Stmt, ranges: Ranges) -> Iterator[ThreadLoop]:
    """The loops on threads in a statement."""
    match stmt:
        case For():
            if is_thread_loop(stmt):
                yield thread_loop(stmt, ranges)
            yield from thread_loops(stmt.body, inside(stmt, ranges))
        case Let():
            yield from thread_loops(stmt.body, {**ranges, stmt.var.name: range_of(stmt.value, ranges)})
        case If():
            yield from thread_loops(stmt.then, ranges)
            if stmt.orelse is not None:
                yield from thread_loops(stmt.orelse, ranges)
        case Seq():
            for child in stmt.body:
                yield from thread_loops(child, ranges)
        case Allocate():
            yield from thread_loops(stmt.body, ranges)


@dataclass(frozen=True, slots=True)
class Around:
    """What is around a statement of a block: ranges of variables, and thread axes that are bound or tested already."""

    ranges: Ranges
    bound: frozenset[str] = frozenset()
    decided: frozenset[str] = frozenset()

    def inside(self, loop: For) -> Around:
        """What is around the body of a loop."""
        tags = {loop.thread} if is_thread_loop(loop) else set()
        return replace(self, ranges=inside(loop, self.ranges), bound=self.bound | tags)


class Regions:
    """The code of a block, for its threads."""

    def __init__(self, nest: Stmt, extents: Mapping[str, int], reducers: Mapping[str, Combiner]) -> None:
        self.axes = frozenset(tag for tag, extent in extents.items() if extent > 1)
        self.extents = extents
        self.written = written(nest) - local_arrays(nest).keys()
        self.local = local_arrays(nest)
        self.replicated = _replicated(nest)
        self.reduction = Reduction(reducers, extents, self.replicated, self._inside)

    def visit(self, stmt: Stmt, ranges: Ranges) -> Stmt:
        """Return what each thread runs of the statements of a block."""
        return self._visit(stmt, Around(ranges))

    def _inside(self, stmt: Stmt, ranges: Ranges, bound: frozenset[str]) -> Stmt:
        """What the threads that differ along some axes run of a statement of a region."""
        return self._visit(stmt, Around(ranges, bound))

    def _visit(self, stmt: Stmt, around: Around) -> Stmt:
        idle = self.axes - around.bound - around.decided - thread_tags(stmt) - self._together(stmt)
        if idle and not _collective(stmt):
            stores = written(stmt)
            copied = frozenset(t for name in stores for t in self.replicated.get(name, ())) & idle
            if not copied or stores <= self.local.keys():
                return self._by_first(stmt, idle - copied, replace(around, decided=around.decided | idle), bool(copied))
        return self._run(stmt, around)

    def _together(self, stmt: Stmt) -> frozenset[str]:
        """The axes whose threads run machine code in a statement together."""
        counts = {s.code.lanes for s in walk(stmt) if isinstance(s, CallMachine)} - {0}
        return frozenset(tag for count in counts for tag in lane_axes(self.extents, count) or ())

    def _by_first(self, stmt: Stmt, idle: frozenset[str], around: Around, copied: bool) -> Stmt:
        """The statement on the first thread along some axes, on all along the others.

        Where others run it that did not before, they read what the first thread may read: as late, and as early.
        """
        done = self._run(stmt, around)
        done = If(first_of(idle), done) if idle else done
        if not copied or not read(stmt) & self.written:
            return done
        if around.bound:
            raise InternalError(f"threads have copies of an array that is made of {', '.join(sorted(read(stmt)))}")
        return Seq((Barrier(), done, Barrier()))

    def _run(self, stmt: Stmt, around: Around) -> Stmt:
        match stmt:
            case For():
                if reduces(stmt) and (is_thread_loop(stmt) or self.reduction.defers(stmt)):
                    return self.reduction.region(stmt, around.ranges)
                return self._loop(stmt, around)
            case Let():
                ranges = {**around.ranges, stmt.var.name: range_of(stmt.value, around.ranges)}
                return Let(stmt.var, stmt.value, self._visit(stmt.body, replace(around, ranges=ranges)))
            case Prefetch():
                return Seq(())
            case CallMachine(code=MachineCode(lanes=lanes)) if lanes:
                return stmt
            case _:
                return map_children(stmt, lambda s: self._visit(s, around))

    def _loop(self, loop: For, around: Around) -> Stmt:
        body = self._visit(loop.body, around.inside(loop))
        if not is_thread_loop(loop):
            return serial(loop, body)
        if loop.thread in around.bound:
            raise InternalError(f"the loop {loop.axis} on {loop.thread} stands inside another one on {loop.thread}")
        bound = thread_loop(loop, around.ranges)
        return with_value(If(conjunction(bound.guards), body), loop.var, bound.value)


def _collective(stmt: Stmt) -> bool:
    """Whether all threads of a block have to come to a statement."""
    return any(isinstance(s, _TOGETHER) for s in walk(stmt)) or reduces(stmt)


def _replicated(nest: Stmt) -> dict[str, frozenset[str]]:
    """Arrays of threads that have fewer axes than some loops that use them, and the axes that they lack.

    The threads that differ along these have copies of the same.
    """
    owners: dict[str, frozenset[str]] = {}
    found: dict[str, frozenset[str]] = {}

    def visit(stmt: Stmt, bound: frozenset[str]) -> None:
        inner = bound | {stmt.thread} if isinstance(stmt, For) and is_thread_loop(stmt) else bound
        if isinstance(stmt, Allocate) and (bound or stmt.threads) and stmt.buffer.scope not in ("shared", WARP):
            owners[stmt.buffer.name] = bound | frozenset(stmt.threads)
        for child in children(stmt):
            visit(child, inner)
        if inner and not children(stmt):
            for name in used(stmt) & owners.keys():
                found[name] = found.get(name, frozenset()) | (inner - owners[name])

    visit(nest, frozenset())
    return {name: tags for name, tags in found.items() if tags}
