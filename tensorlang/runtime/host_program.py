"""The host part of a device program, as one Python function: it sets sizes, allocates scratch, launches kernels.

A `HostProgram` is made once per kernel; a call runs it on a `Device`, which is what a target gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any, Protocol, TypeAlias

import numpy as np

from tensorlang.dataclass import dataclass
from tensorlang.errors import InternalError, KernelError
from tensorlang.ir.expr import Expr, Load, Var, walk
from tensorlang.ir.interpret_expr import Source, extent_text, text
from tensorlang.ir.stmt import Allocate, DeviceKernel, Fail, For, If, Kernel, Launch, Let, LoopKind, Seq, Stmt
from tensorlang.ir.stmt import walk as statements

Extents: TypeAlias = tuple[int, int, int]
_DEEPEST = 12  # Python refuses more than 20 nested blocks in one function


class Device(Protocol):
    """Where a host program runs: one queue of one device. What it is told to do, it does in that order."""

    def allocate(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Scratch memory for an array, uninitialised; MemoryError when there is none."""

    def free(self, array: Any) -> None:
        """Give back what `allocate` gave; launches that use it may still be under way."""

    def launch(self, name: str, grid: Extents, block: Extents, arrays: Sequence[Any], scalars: Sequence[int]) -> None:
        """Run the kernel of a name on arrays, in the order of its params; no extent of the grid is 0."""


@dataclass(frozen=True, slots=True)
class HostProgram:
    """The host part of a kernel. `kernels` are those it launches; `source` is the Python that runs."""

    name: str
    kernels: tuple[DeviceKernel, ...]
    source: str
    function: Callable[..., None] = field(compare=False)

    def __call__(self, device: Device, arrays: Sequence[Any], sizes: Sequence[int]) -> None:
        """Run on the device's arrays and on sizes, both in the kernel's order; KernelError when it records a fault.

        Returns when all is launched; a device may work on.
        """
        scratch: list[Any] = []
        faults: list[str] = []
        try:
            self.function(device, scratch, faults.append, *arrays, *sizes)
        finally:
            while scratch:
                device.free(scratch.pop())
        if faults:
            raise KernelError(f"{self.name}: {faults[0]}")


def host_program(kernel: Kernel) -> HostProgram:
    """Translate a kernel whose loops over threads have become launches; InternalError on what a host cannot run."""
    source = Source()
    writer = _Writer(source)
    params = [source.buffer(p.name) for p in kernel.params]
    sizes = [source.variable(v) for v in kernel.sizes]
    writer.line(1, "launch = device.launch")
    with np.errstate(all="ignore"):
        writer.stmt(kernel.body, 1, 0)
    code = "\n".join([f"def program({', '.join(['device', 'scratch', 'fault', *params, *sizes])}):", *writer.lines])
    exec(compile(code, f"<host part of {kernel.name}>", "exec"), source.globals)
    return HostProgram(kernel.name, device_kernels(kernel), f"{code}\n", source.globals["program"])


def device_kernels(kernel: Kernel) -> tuple[DeviceKernel, ...]:
    """The kernels that a host part launches, each once, in program order; InternalError when two share a name."""
    found: dict[str, DeviceKernel] = {}
    for stmt in statements(kernel.body):
        if isinstance(stmt, Launch) and found.setdefault(stmt.kernel.name, stmt.kernel) != stmt.kernel:
            raise InternalError(f"{kernel.name} launches two kernels of the name {stmt.kernel.name}")
    return tuple(found.values())


class _Writer:
    """Lines of Python for statements; one space of indent a level."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.lines: list[str] = []

    def line(self, indent: int, code: str) -> None:
        self.lines.append(" " * indent + code)

    def expr(self, expr: Expr) -> str:
        if any(isinstance(node, Load) for node in walk(expr)):
            raise InternalError(f"the host part of a device program reads an element of device memory: {expr}")
        return text(self.source, expr)

    def stmt(self, stmt: Stmt, indent: int, blocks: int) -> None:
        """Write a statement that stands inside `blocks` blocks of the current Python function."""
        if blocks == _DEEPEST and isinstance(stmt, For | If):
            name = self.source.fresh("inner")
            self.line(indent, f"def {name}():")
            self.stmt(stmt, indent + 1, 0)
            self.line(indent, f"{name}()")
            return
        match stmt:
            case Seq():
                for child in stmt.body:
                    self.stmt(child, indent, blocks)
                if not stmt.body:
                    self.line(indent, "pass")
            case For(kind=LoopKind.SERIAL | LoopKind.UNROLLED):
                bounds = f"{self.expr(stmt.lower)}, {self.expr(stmt.upper)}"
                with self.scoped(stmt.var) as name:
                    self.line(indent, f"for {name} in range({bounds}):")
                    self.stmt(stmt.body, indent + 1, blocks + 1)
            case If():
                self.line(indent, f"if {self.expr(stmt.cond)}:")
                self.stmt(stmt.then, indent + 1, blocks + 1)
                if stmt.orelse is not None:
                    self.line(indent, "else:")
                    self.stmt(stmt.orelse, indent + 1, blocks + 1)
            case Let():
                value = self.expr(stmt.value)
                with self.scoped(stmt.var) as name:
                    self.line(indent, f"{name} = {value}")
                    self.stmt(stmt.body, indent, blocks)
            case Allocate():
                self.allocate(stmt, indent, blocks)
            case Launch():
                self.launch(stmt, indent)
            case Fail():
                self.line(indent, f"fault({stmt.message!r})")
            case _:
                raise InternalError(f"a host cannot run a {type(stmt).__name__} of a device program")

    def allocate(self, stmt: Allocate, indent: int, blocks: int) -> None:
        outer = self.source.buffers.get(stmt.buffer.name)
        shape = "".join(f"{extent_text(self.source, extent)}, " for extent in stmt.buffer.shape)
        name = self.source.buffer(stmt.buffer.name)
        self.line(indent, f"{name} = device.allocate(({shape}), {stmt.buffer.dtype!r})")
        self.line(indent, f"scratch.append({name})")
        self.stmt(stmt.body, indent, blocks)
        self.line(indent, "device.free(scratch.pop())")
        if outer is not None:
            self.source.buffers[stmt.buffer.name] = outer

    def launch(self, stmt: Launch, indent: int) -> None:
        """Extents of the grid are made of the kernel's own scalars, which get their values first."""
        kernel = stmt.kernel
        missing = [p.name for p in kernel.params if p.name not in self.source.buffers]
        if missing:
            raise InternalError(f"{kernel.name} is launched on {', '.join(missing)}, which its host does not have")
        values = [self.expr(value) for value in stmt.scalars]
        arrays = "".join(f"{self.source.buffers[p.name]}, " for p in kernel.params)
        with self.several(kernel.scalars) as names:
            for name, value in zip(names, values, strict=True):
                self.line(indent, f"{name} = {value}")
            extents = [self.expr(extent) for extent in kernel.grid]
            grid = self.source.fresh("grid")
            self.line(indent, f"{grid} = ({', '.join(extents)})")
            scalars = "".join(f"{name}, " for name in names)
            self.line(indent, f"if min({grid}) > 0:")
            self.line(indent + 1, f"launch({kernel.name!r}, {grid}, {kernel.block}, ({arrays}), ({scalars}))")

    @contextmanager
    def scoped(self, var: Var) -> Iterator[str]:
        """The identifier of a variable, whose name means that until the end."""
        outer, interval = self.source.variables.get(var.name), self.source.intervals.get(var.name)
        yield self.source.variable(var)
        del self.source.variables[var.name], self.source.intervals[var.name]
        if outer is not None and interval is not None:
            self.source.variables[var.name], self.source.intervals[var.name] = outer, interval

    @contextmanager
    def several(self, variables: Sequence[Var]) -> Iterator[list[str]]:
        """The identifiers of variables that are set together."""
        if not variables:
            yield []
            return
        with self.scoped(variables[0]) as first, self.several(variables[1:]) as rest:
            yield [first, *rest]
