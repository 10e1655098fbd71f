"""The split of a kernel into a host program and the device nests that become the kernels it launches."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.errors import TargetError
from tensorlang.ir.expr import Buffer, Expr, Load, variables, walk
from tensorlang.ir.loops import reads_memory
from tensorlang.ir.stmt import (
    INDEX,
    Allocate,
    Barrier,
    CallPython,
    Combiner,
    DeviceKernel,
    Fail,
    For,
    If,
    Kernel,
    Launch,
    Let,
    LoopKind,
    Seq,
    Stmt,
    Store,
    map_children,
    stmt_exprs,
    with_buffers,
)
from tensorlang.ir.stmt import walk as statements
from tensorlang.ir.thread_tags import VIRTUAL
from tensorlang.lowering.device.arrays import used, written
from tensorlang.lowering.device.kernel import declared
from tensorlang.lowering.device.nest import Nest
from tensorlang.lowering.device.ranges import Ranges, inside, range_of
from tensorlang.lowering.device.scratch import in_device_memory
from tensorlang.lowering.device.threads import bound_loops, is_block_loop, is_thread_loop
from tensorlang.te.program import unique

_LONGEST = 64
"""Characters of a kernel's name that those of its launches begin with."""


@dataclass(frozen=True, slots=True)
class Split:
    """A host program, and the nests that its launches are of, in their order; its kernels are empty until joined."""

    host: Kernel
    nests: tuple[Nest, ...]

    def each(self, function: Callable[[Nest], Nest]) -> Split:
        """The program after a pass over its nests; itself, if that leaves all of them as they are."""
        nests = tuple(map(function, self.nests))
        same = all(now is before for now, before in zip(nests, self.nests, strict=True))
        return self if same else replace(self, nests=nests)

    def joined(self) -> Kernel:
        """The host program with its kernels, as far as they have come."""
        kernels = {nest.name: declared(nest) for nest in self.nests}

        def visit(stmt: Stmt) -> Stmt:
            if isinstance(stmt, Launch):
                return Launch(kernels[stmt.kernel.name], kernels[stmt.kernel.name].scalars)
            return map_children(stmt, visit)

        return replace(self.host, body=visit(self.host.body))


def split(
    kernel: Kernel, reducers: Mapping[str, Combiner], *, python: bool, scratch: Collection[str] = frozenset()
) -> Split:
    """Return the host program of a kernel in region form: a launch in the place of every nest on blocks or threads.

    `reducers` tells by the names of arrays how updates of their elements combine; arrays of one reduction stand in
    the order of its combiner, and share it. `python`: the host can call Python functions between launches. `scratch`
    are arrays of iterations that may be in device memory.

    Loops around nests stay on the host, and statements without a bound loop become nests of one thread. Raises
    TargetError for a host's loop whose bounds are on the device, for a test on the device of what its kernels change,
    and for a Python function in a nest.
    """
    host = _Host(kernel, reducers, python, scratch)
    body = host.visit(kernel.body, _Scope(host.sizes, {}))
    return Split(replace(kernel, body=body, callbacks=kernel.callbacks if python else ()), tuple(host.nests))


@dataclass(frozen=True, slots=True)
class _Scope:
    """What is around a host statement: ranges of host variables, arrays by name, and what kernels have to wrap.

    `inner` are tests and values that only the device can tell: kernels inside stand in them.
    """

    ranges: Ranges
    arrays: Mapping[str, Buffer]
    inner: tuple[If | Let, ...] = ()


class _Host:
    def __init__(
        self, kernel: Kernel, reducers: Mapping[str, Combiner], python: bool, scratch: Collection[str]
    ) -> None:
        self.kernel = kernel
        self.scratch = scratch
        self.python = python
        self.reducers = reducers
        self.nests: list[Nest] = []
        self.sizes: Ranges = {size.name: (0, None) for size in kernel.sizes}

    def visit(self, stmt: Stmt, scope: _Scope) -> Stmt:
        """The host statement that does what a statement does."""
        if self._plain(stmt):
            return self._one_thread(stmt, scope)
        match stmt:
            case CallPython() if not scope.inner:
                return stmt
            case Seq():
                return self._sequence(stmt, scope)
            case Allocate():
                return self._allocate(stmt, scope)
            case Let():
                if stmt.var.dtype != INDEX or _on_device(stmt.value, scope):
                    return self.visit(stmt.body, self._wrapping(scope, stmt, stmt.value, stmt.body))
                ranges = {**scope.ranges, stmt.var.name: range_of(stmt.value, scope.ranges)}
                return Let(stmt.var, stmt.value, self.visit(stmt.body, replace(scope, ranges=ranges)))
            case For() if stmt.kind is not LoopKind.BOUND or stmt.thread == VIRTUAL:
                return self._host_loop(stmt, scope)
            case If() if _on_device(stmt.cond, scope):
                then = self.visit(stmt.then, self._wrapping(scope, stmt, stmt.cond, stmt))
                if stmt.orelse is None:
                    return then
                unless = If(~stmt.cond, stmt.orelse, is_guard=stmt.is_guard)
                return Seq((then, self.visit(stmt.orelse, self._wrapping(scope, unless, stmt.cond, stmt))))
            case If():
                return map_children(stmt, lambda s: self.visit(s, scope))
        return self._launch(stmt, scope)

    def _plain(self, stmt: Stmt) -> bool:
        """Whether a statement holds nothing that the host launches or calls."""
        calls = self.python and any(isinstance(s, CallPython) for s in statements(stmt))
        return not calls and next(bound_loops(stmt), None) is None

    def _sequence(self, stmt: Seq, scope: _Scope) -> Stmt:
        """The statements in a row; those without a bound loop that follow each other share a kernel.

        Single stores share that of the nest of one block beside them, as its first thread runs them.
        """
        done: list[Stmt] = []
        plain: list[Stmt] = []
        for child in (*_in_one_block(stmt.body), None):
            if child is not None and self._plain(child):
                plain.append(child)
                continue
            if plain:
                done.append(self._one_thread(plain[0] if len(plain) == 1 else Seq(tuple(plain)), scope))
                plain = []
            if child is not None:
                done.append(self._launch(child, scope) if _is_joined(child) else self.visit(child, scope))
        return Seq(tuple(done))

    def _host_loop(self, loop: For, scope: _Scope) -> Stmt:
        """A loop around nests: the host launches them in every iteration."""
        for bound in (loop.lower, loop.upper):
            if _on_device(bound, scope):
                raise TargetError(
                    f"the loop {loop.axis or loop.var.name} runs on the host, as it stands around loops on blocks and "
                    f"threads, and its bound {bound} is on the device; bind it, or a loop around it"
                )
        body = self.visit(loop.body, replace(scope, ranges=inside(loop, scope.ranges)))
        return For(loop.var, loop.lower, loop.upper, LoopKind.SERIAL, body, loop.axis)

    def _allocate(self, stmt: Allocate, scope: _Scope) -> Stmt:
        """Device memory; that of an array that lives longer than a kernel is global, whatever its scope."""
        buffer = replace(stmt.buffer, scope="global")
        body = with_buffers(stmt.body, lambda b: buffer if b.name == buffer.name else b)
        arrays = {**scope.arrays, buffer.name: buffer}
        return Allocate(buffer, self.visit(body, replace(scope, arrays=arrays)))

    def _wrapping(self, scope: _Scope, outer: If | Let, value: Expr, body: Stmt) -> _Scope:
        """The scope in which kernels evaluate a test or a value themselves; refused if they change what it reads."""
        changed = {node.buffer.name for node in walk(value) if isinstance(node, Load)} & written(body)
        if changed:
            raise TargetError(
                f"the kernel {self.kernel.name} evaluates {value} outside of its loops on blocks and threads, which "
                f"write {', '.join(sorted(changed))}; bind a loop around it"
            )
        return replace(scope, inner=(*scope.inner, outer))

    def _one_thread(self, stmt: Stmt, scope: _Scope) -> Stmt:
        """Run a statement in which no loop is bound on a single thread: right, and slow.

        Its scratch arrays become device memory, which is large enough for any.
        """
        if isinstance(stmt, Fail) and not scope.inner:
            return stmt
        arrays = dict(scope.arrays)
        hoisted: list[Buffer] = []
        others = used(stmt)

        def visit(s: Stmt) -> Stmt:
            if not isinstance(s, Allocate) or s.buffer.scope != "global":
                return map_children(s, visit)
            name = s.buffer.name
            taken = {*arrays, *(b.name for b in self.kernel.params)}
            buffer = replace(s.buffer, name=unique(name, taken | others)) if name in taken else s.buffer
            arrays[buffer.name] = buffer
            hoisted.append(buffer)
            return visit(with_buffers(s.body, lambda b: buffer if b.name == name else b))

        body = visit(stmt)
        launch = self._launch(body, replace(scope, arrays=arrays))
        for buffer in reversed(hoisted):
            launch = Allocate(buffer, launch)
        return launch

    def _launch(self, stmt: Stmt, scope: _Scope) -> Stmt:
        """The launch of a device nest."""
        if isinstance(stmt, Seq) and not stmt.body:
            return stmt
        for part in statements(stmt):
            if isinstance(part, CallPython):
                raise TargetError(
                    f"the operation {part.name} calls a Python function (te.extern), which no GPU runs; compute it "
                    "in another kernel, or build for llvm"
                )
        for outer in reversed(scope.inner):
            if isinstance(outer, If):
                stmt = replace(outer, then=stmt, orelse=None)
            elif any(outer.var.name in variables(e) for e in stmt_exprs(stmt)):
                stmt = Let(outer.var, outer.value, stmt)
        stmt, moved = in_device_memory(stmt, self.scratch)
        word = re.sub(r"^(?=[0-9])|\W", "_", self.kernel.name[:_LONGEST], flags=re.ASCII)
        arrays = {**{b.name: b for b in (*self.kernel.params, *moved)}, **scope.arrays}
        nest = Nest(f"{word}_kernel{len(self.nests)}", stmt, arrays, scope.ranges, self.reducers)
        self.nests.append(nest)
        launch: Stmt = Launch(DeviceKernel(nest.name, (), (), nest.grid, nest.block, (), Seq(())), ())
        for buffer in reversed(moved):
            launch = Allocate(buffer, launch)
        return launch


def _in_one_block(body: Sequence[Stmt]) -> Iterator[Stmt]:
    """Statements in a row, with stores joined to the loop on threads that they stand beside: one block runs them all.

    What its threads write before a barrier, all of them read behind it.
    """
    around: list[Stmt] = []
    for stmt in (*body, None):
        loops = [s for s in around if isinstance(s, For)]
        if isinstance(stmt, Store) or (stmt is not None and not loops and _is_of_one_block(stmt)):
            around.append(stmt)
            continue
        if loops and len(around) > 1:
            yield Seq(tuple(s for part in around for s in (Barrier(), part))[1:])
        else:
            yield from around
        around = [stmt] if stmt is not None and _is_of_one_block(stmt) else []
        if stmt is not None and not around:
            yield stmt


def _is_joined(stmt: Stmt) -> bool:
    return isinstance(stmt, Seq) and any(isinstance(part, Barrier) for part in stmt.body)


def _is_of_one_block(stmt: Stmt) -> bool:
    return is_thread_loop(stmt) and not any(is_block_loop(loop) for loop in bound_loops(stmt))


def _on_device(expr: Expr, scope: _Scope) -> bool:
    """Whether only the device can tell a value."""
    unknown = {s.var.name for s in scope.inner if isinstance(s, Let)}
    return reads_memory(expr) or bool(unknown & variables(expr))
