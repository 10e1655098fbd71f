"""The verifier of device kernels: what the code of threads must satisfy before a target prints it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NoReturn

from tensorlang.errors import InternalError
from tensorlang.ir.expr import Buffer, Const, Expr, Load, Var, variables, walk
from tensorlang.ir.loops import constant_extent
from tensorlang.ir.machine import ACCUMULATES
from tensorlang.ir.printer import stmt_text
from tensorlang.ir.shuffle import Shuffle, shuffles
from tensorlang.ir.stmt import (
    INDEX,
    Allocate,
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    AtomicUpdate,
    Barrier,
    BoxCopy,
    CallMachine,
    CallPython,
    DeviceKernel,
    For,
    If,
    Launch,
    Let,
    LoopKind,
    MachineCommit,
    MachineWait,
    Prefetch,
    Seq,
    Stmt,
    Store,
    ThreadReduce,
    children,
)
from tensorlang.ir.stmt import walk as statements
from tensorlang.ir.thread_tags import BLOCKS, THREADS
from tensorlang.ir.warp_arrays import WARP, lane_axes

LANES = (2, 4, 8, 16)
_WINDOW = 12  # lines of the faulty statement that a message shows


def verify_device(kernel: DeviceKernel, *, own: bool = True, together: bool = True, lanes: bool = True) -> None:
    """Raise InternalError, with the place printed, unless a device kernel is well formed.

    Checked: variables and arrays are declared, once on a path, and used as such; indices are int64 and as many as
    dimensions; the block has threads, and reductions across threads take those; no loop is bound or parallel, and
    vectors have as many lanes as devices know; threads that run machine code together, or take values from each other's
    registers, come there together; and where
    all threads of a block must come, at barriers, waits and reductions, none of the tests and loops around depends on
    the thread. What is read from an array that the kernel writes counts as different in each thread.

    A draft of a kernel may be less: with `own=False` arrays of a block, and a copy for each thread, may be allocated
    inside; `together=False` leaves out who comes to barriers and to code of several threads, `lanes=False` the lengths
    of vectors and unrolled loops.
    """
    checker = _Checker(kernel, own, together, lanes)
    if any(extent < 1 for extent in kernel.block):
        checker.fault(kernel.body, f"the block has {kernel.block} threads")
    for scalar in kernel.scalars:
        if scalar.dtype != INDEX:
            checker.fault(kernel.body, f"the scalar {scalar.name} is {scalar.dtype}, not {INDEX}")
        checker.define(scalar, kernel.body, False)
    for extent in kernel.grid:
        checker.expr(extent, kernel.body, INDEX)
    for tag in (*BLOCKS, *THREADS):
        checker.define(Var(tag, INDEX), kernel.body, tag in THREADS)
    for buffer in kernel.params:
        checker.declare(buffer, "global", kernel.body)
    for buffer in kernel.shared:
        checker.declare(buffer, "shared", kernel.body)
    checker.stmt(kernel.body, False, False)


class _Checker:
    def __init__(self, kernel: DeviceKernel, own: bool, together: bool, lanes: bool) -> None:
        self.kernel = kernel
        self.owned, self.together, self.lanes = own, together, lanes
        self.variables: dict[str, str] = {}
        counts = {s.code.lanes for s in statements(kernel.body) if isinstance(s, CallMachine)} - {0}
        block = dict(zip(THREADS, kernel.block, strict=True))
        self.own = {tag for count in counts for tag in lane_axes(block, count) or ()}
        self.own |= {tag for s in shuffles(kernel.body) for tag in lane_axes(block, s.width) or ()}
        self.apart = 0
        self.varying: set[str] = set()
        self.buffers: dict[str, Buffer] = {}
        self.written = set(_written(kernel.body))

    def fault(self, stmt: Stmt, message: str) -> NoReturn:
        """Raise, showing the first lines of the statement."""
        lines = stmt_text(stmt).splitlines()
        more = [f"    ... {len(lines) - _WINDOW} lines more"] if len(lines) > _WINDOW else []
        shown = [f"    {line}" for line in lines[:_WINDOW]]
        raise InternalError("\n".join([f"device kernel {self.kernel.name}: {message}", *shown, *more]))

    def define(self, var: Var, stmt: Stmt, varying: bool) -> None:
        """Bring a variable into scope; `varying`: threads of a block see different values."""
        if var.name in self.variables:
            self.fault(stmt, f"variable {var.name} is defined twice on one path")
        self.variables[var.name] = var.dtype
        if varying:
            self.varying.add(var.name)

    def declare(self, buffer: Buffer, scope: str, stmt: Stmt) -> None:
        """Bring an array into scope."""
        if buffer.name in self.buffers:
            self.fault(stmt, f"array {buffer.name} is declared twice on one path")
        if buffer.scope != scope:
            self.fault(stmt, f"array {buffer.name} has the scope {buffer.scope!r}, not {scope!r}")
        if scope != "global" and not all(isinstance(extent, Const) for extent in buffer.shape):
            self.fault(stmt, f"the shape of {buffer} is not constant")
        for extent in buffer.shape:
            self.expr(extent, stmt, extent.dtype)
        self.buffers[buffer.name] = buffer

    def stmt(self, stmt: Stmt, divergent: bool, lane: bool) -> None:
        """Check a statement; `divergent`: not all threads of a block come here; `lane`: a vectorized loop is around."""
        match stmt:
            case For():
                self._for(stmt, divergent, lane)
            case If():
                self.expr(stmt.cond, stmt, "bool")
                divergent = divergent or self._varies(stmt.cond)
                self._within(self._parts_lanes(stmt.cond), children(stmt), divergent, lane)
            case Seq():
                for child in stmt.body:
                    self.stmt(child, divergent, lane)
            case Let():
                if isinstance(stmt.value, Shuffle):
                    self._shuffle(stmt.value, stmt, lane)
                else:
                    self.expr(stmt.value, stmt, stmt.var.dtype)
                self.define(stmt.var, stmt, self._varies(stmt.value))
                if self._parts_lanes(stmt.value):
                    self.own.add(stmt.var.name)
                self.stmt(stmt.body, divergent, lane)
                self._leave(stmt.var)
            case Allocate():
                if stmt.threads and self.owned:
                    self.fault(stmt, f"array {stmt.buffer.name} still has a copy for each of {', '.join(stmt.threads)}")
                inside = (WARP,) if self.owned else (WARP, "shared")
                self.declare(stmt.buffer, stmt.buffer.scope if stmt.buffer.scope in inside else "local", stmt)
                self.stmt(stmt.body, divergent, lane)
                del self.buffers[stmt.buffer.name]
            case Barrier() | AsyncWait() | ThreadReduce() if divergent or lane:
                self.fault(stmt, "not all threads of a block come here together")
            case AsyncCommit(barriers=Buffer()) if divergent or lane:
                self.fault(stmt, "not all threads of a block come here together")
            case MachineCommit() | MachineWait() if self.apart or lane:
                self.fault(stmt, f"not all threads of a group that run {stmt.group} together come here")
            case CallPython() | Launch():
                self.fault(stmt, "this does not run on a device")
            case _:
                self._leaf(stmt, lane)

    def _leaf(self, stmt: Stmt, lane: bool) -> None:
        match stmt:
            case Store() | AtomicUpdate():
                self._access(stmt.buffer, stmt.index, stmt)
                self.expr(stmt.value, stmt, stmt.buffer.dtype)
            case Prefetch():
                self._access(stmt.buffer, stmt.index, stmt)
            case AsyncCopy():
                self._access(stmt.buffer, stmt.index, stmt)
                self._access(stmt.source, stmt.source_index, stmt)
                if stmt.buffer.scope != "shared" or stmt.source.scope != "global":
                    self.fault(stmt, "a copy under way goes from global to shared memory")
                if stmt.valid is not None:
                    self.expr(stmt.valid, stmt, "bool")
            case BoxCopy():
                self._box(stmt)
            case AsyncCommit(barriers=Buffer() as barriers) | AsyncWait(barriers=Buffer() as barriers):
                self._barriers(barriers, stmt)
            case ThreadReduce():
                self._reduce(stmt)
            case CallMachine():
                if stmt.code.lanes and (self.apart or lane):
                    self.fault(stmt, f"not all of the {stmt.code.lanes} threads that run {stmt.code.name} come here")
                for view in stmt.views:
                    self._access(view.buffer, view.index, stmt)
                    if stmt.code.lanes and any(map(self._parts_lanes, view.index)):
                        self.fault(stmt, f"the threads that run {stmt.code.name} do so on different tiles")
                if stmt.accumulates is not None:
                    self.expr(stmt.accumulates, stmt, ACCUMULATES.dtype)
                self.stmt(stmt.meaning, False, lane)

    def _for(self, stmt: For, divergent: bool, lane: bool) -> None:
        if stmt.kind in (LoopKind.BOUND, LoopKind.PARALLEL):
            self.fault(stmt, f"a {stmt.kind.value} loop is left")
        extent = constant_extent(stmt)
        if stmt.kind is LoopKind.VECTORIZED and self.lanes and (extent not in LANES or lane):
            self.fault(stmt, f"a vectorized loop has {extent} lanes{' inside another one' if lane else ''}")
        if stmt.kind is LoopKind.UNROLLED and self.lanes and extent is None:
            self.fault(stmt, "an unrolled loop has no constant extent")
        for bound in (stmt.lower, stmt.upper):
            self.expr(bound, stmt, INDEX)
        if stmt.var.dtype != INDEX:
            self.fault(stmt, f"loop variable {stmt.var.name} is {stmt.var.dtype}, not {INDEX}")
        varies = self._varies(stmt.lower) or self._varies(stmt.upper)
        self.define(stmt.var, stmt, self._varies(stmt.lower))
        parts = self._parts_lanes(stmt.lower) or self._parts_lanes(stmt.upper)
        if parts:
            self.own.add(stmt.var.name)
        self._within(parts, (stmt.body,), divergent or varies, lane or stmt.kind is LoopKind.VECTORIZED)
        self._leave(stmt.var)

    def _within(self, parts: bool, body: Iterable[Stmt], divergent: bool, lane: bool) -> None:
        """Check statements inside one that may part the lanes which run machine code together."""
        self.apart += parts
        for child in body:
            self.stmt(child, divergent, lane)
        self.apart -= parts

    def _parts_lanes(self, expr: Expr) -> bool:
        """Whether lanes that run machine code together may see different values of an expression."""
        parts = bool(variables(expr) & self.own) or (bool(self.own) and self._reads_written(expr))
        return self.together and parts

    def _leave(self, var: Var) -> None:
        del self.variables[var.name]
        self.varying.discard(var.name)
        self.own.discard(var.name)

    def _box(self, stmt: BoxCopy) -> None:
        self._access(stmt.buffer, stmt.index, stmt)
        self._access(stmt.source, stmt.source_index, stmt)
        self._barriers(stmt.barriers, stmt)
        if stmt.buffer.scope != "shared" or stmt.source.scope != "global":
            self.fault(stmt, "a copy under way goes from global to shared memory")
        if len(stmt.box) != len(stmt.source.shape):
            self.fault(stmt, f"a box of {stmt.source} has {len(stmt.box)} sides")

    def _barriers(self, barriers: Buffer, stmt: Stmt) -> None:
        if self.buffers.get(barriers.name) != barriers or barriers.scope != "shared":
            self.fault(stmt, f"bulk copies are counted in {barriers.name}, which is no array in shared memory")

    def _shuffle(self, value: Shuffle, stmt: Stmt, lane: bool) -> None:
        if lane_axes(dict(zip(THREADS, self.kernel.block, strict=True)), value.width) is None:
            self.fault(
                stmt, f"a shuffle is of {value.width} neighbours, which are no axes of {self.kernel.block} threads"
            )
        if self.apart or lane:
            self.fault(stmt, f"not all of the {value.width} threads that exchange {value.value} come here")
        if any(map(self._parts_lanes, value.value.index)):
            self.fault(stmt, f"the threads that exchange {value.value} name different registers")
        for part, dtype in ((value.value, value.dtype), (value.lane, INDEX), (value.wanted, "bool")):
            self.expr(part, stmt, dtype)

    def _reduce(self, stmt: ThreadReduce) -> None:
        count = len(stmt.targets)
        of = stmt.combiner
        if not count == len(stmt.values) == len(of.lhs) == len(of.rhs) == len(of.results) == len(of.identity):
            self.fault(stmt, "a reduction across threads has not one value for each of its targets")
        for (buffer, index), value in zip(stmt.targets, stmt.values, strict=True):
            self._access(buffer, index, stmt)
            self.expr(value, stmt, buffer.dtype)
        extents = dict(zip(THREADS, self.kernel.block, strict=True))
        for tag, extent in stmt.threads:
            if not 1 <= extent <= extents.get(tag, 0):
                self.fault(stmt, f"a reduction takes {extent} threads along {tag}, the block has {extents.get(tag, 0)}")
        if not stmt.threads or len(dict(stmt.threads)) < len(stmt.threads):
            self.fault(stmt, "a reduction across threads goes along each axis once, along one at least")

    def _access(self, buffer: Buffer, index: tuple[Expr, ...], stmt: Stmt) -> None:
        known = self.buffers.get(buffer.name)
        if known is None:
            self.fault(stmt, f"array {buffer.name} is used outside its scope")
        if known != buffer:
            self.fault(stmt, f"array {buffer.name} is used as {buffer} ({buffer.scope}), declared as {known}")
        if len(index) != len(buffer.shape):
            self.fault(stmt, f"{buffer} has {len(buffer.shape)} dimensions, indexed with {len(index)}")
        for part in index:
            self.expr(part, stmt, INDEX)

    def expr(self, expr: Expr, stmt: Stmt, dtype: str) -> None:
        """Check the names that an expression uses, and its dtype."""
        if expr.dtype != dtype:
            self.fault(stmt, f"an expression is {expr.dtype}, expected {dtype}: {expr}")
        for node in walk(expr):
            if isinstance(node, Var) and self.variables.get(node.name) != node.dtype:
                self.fault(stmt, f"variable {node.name} ({node.dtype}) is used outside its scope, or as another dtype")
            if isinstance(node, Load):
                self._access(node.buffer, node.index, stmt)
            if isinstance(node, Shuffle):
                self.fault(stmt, f"{node} is a part of another expression, or of no Let")

    def _varies(self, expr: Expr) -> bool:
        """Whether threads of a block may see different values of an expression."""
        return self.together and (bool(variables(expr) & self.varying) or self._reads_written(expr))

    def _reads_written(self, expr: Expr) -> bool:
        """Whether an expression reads an array that the kernel writes."""
        return not self.written.isdisjoint(node.buffer.name for node in walk(expr) if isinstance(node, Load))


def _written(stmt: Stmt) -> Iterator[str]:
    for s in statements(stmt):
        match s:
            case Store() | AtomicUpdate() | AsyncCopy() | BoxCopy():
                yield s.buffer.name
            case ThreadReduce():
                yield from (b.name for b, _ in s.targets)
            case CallMachine():
                yield from (v.buffer.name for v in s.views)
