"""The device interpreter: what a kernel with launches means. It runs each block of a launch in lockstep on NumPy.

A statement runs once for all threads of a block (`ir.device`). Reported as InternalError, with the element, the threads
and the statements: two threads of a block that touch an element between two barriers, one of them to write, and two
threads of different blocks that ever do, unless both are atomic updates; scratch memory read before it is written or
while a copy to it is under way; an index outside its array; a barrier that a part of the threads comes to. Races are
judged by epochs between barriers, not by values, so that one run finds them where control does not depend on data.

Values are those of the serial interpreter (`ir.interpret`). Only a reduction across threads may add floats in another
order than a device does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import InternalError, KernelError
from tensorlang.ir.device.clock import Array, Clock
from tensorlang.ir.device.copies import Copies
from tensorlang.ir.device.device_statements import device_statement
from tensorlang.ir.device.lanes import Code, Compiler, Mask
from tensorlang.ir.device.memory import Memory, Storage
from tensorlang.ir.device.sites import Sites
from tensorlang.ir.device.statements import Block, Run, StatementCompiler
from tensorlang.ir.expr import Buffer
from tensorlang.ir.stmt import (
    AsyncCopy,
    AtomicUpdate,
    Barrier,
    BoxCopy,
    CallPython,
    DeviceKernel,
    Kernel,
    Launch,
    Stmt,
    Store,
    ThreadReduce,
    walk,
)

Blocks: TypeAlias = Literal["all", "ends"]

_PLACES = tuple(f"{what}.{axis}" for what in ("blockIdx", "threadIdx") for axis in "xyz")
_BLOCKS = ("all", "ends")


@dataclass(frozen=True, slots=True)
class Threaded:
    """A kernel as functions that run its launches."""

    kernel: Kernel
    body: Run = field(compare=False)
    sites: Sites = field(compare=False)

    def __call__(
        self,
        arrays: Mapping[str, Array],
        sizes: Mapping[str, int],
        *,
        check: bool = True,
        late: bool = False,
        blocks: Blocks = "all",
    ) -> None:
        """Run on arrays by parameter name and size values by name (see `run`)."""
        if blocks not in _BLOCKS:
            raise ValueError(f"blocks {blocks!r}: expected one of {', '.join(_BLOCKS)}")
        host = _Host(Clock((1, 1, 1), (1, 1, 1)), check=check, late=late, ends=blocks == "ends")
        flat = {p.name: np.ascontiguousarray(arrays[p.name], dtypes.info(p.dtype).numpy) for p in self.kernel.params}
        for param in self.kernel.params:
            storage = Storage(np.shape(arrays[param.name]), flat[param.name].reshape(-1), None)
            host.memories[param.name] = Memory(param, storage, host.clock, self.sites, check)
        host.values.update({v.name: np.int64(sizes[v.name]) for v in self.kernel.sizes})
        with np.errstate(all="ignore"):
            self.body(host, None)
        for name in self.kernel.outputs:
            if not np.shares_memory(flat[name], arrays[name]):
                arrays[name][...] = flat[name].reshape(np.shape(arrays[name]))
        if host.faults:
            raise KernelError(host.faults[0])


def run(
    kernel: Kernel,
    arrays: Mapping[str, Array],
    sizes: Mapping[str, int] | None = None,
    *,
    check: bool = True,
    late: bool = False,
    blocks: Blocks = "all",
) -> None:
    """Run a kernel with launches once on NumPy arrays; outputs are written in place.

    `check` looks for races, reads of unwritten memory and of copies under way; indices and barriers are always checked.
    `late`: asynchronous copies happen when they are waited for, else at once. `blocks`: `all` of a launch, or its first
    and last one (`ends`), which checks a large grid, but leaves most of the outputs as they are.

    Raises KernelError when the kernel records a fault, InternalError on what the module's docstring names.
    """
    translate(kernel)(arrays, sizes or {}, check=check, late=late, blocks=blocks)


def translate(kernel: Kernel) -> Threaded:
    """Turn a kernel with launches into functions."""
    sites = Sites(kernel.name)
    callbacks = dict(kernel.callbacks)
    compiler = StatementCompiler(Compiler(sites), partial(_host_statement, callbacks))
    return Threaded(kernel, compiler.stmt(kernel.body), sites)


@dataclass(slots=True)
class _Host(Block):
    """The host is a block of one thread. `ends`: run the first and last block of launches only."""

    late: bool = False
    ends: bool = False

    def scratch(self, buffer: Buffer, shape: tuple[int, ...], sites: Sites, lanes: int = 1) -> Memory:
        """An array in the memory of the device; blocks that are left out would not write it."""
        if buffer.scope != "global":
            raise InternalError(f"kernel {sites.kernel} allocates {buffer} in {buffer.scope} memory on the host")
        storage = Storage.fresh(buffer, shape)
        if self.ends:
            storage.written = None
        return Memory(buffer, storage, self.clock, sites, self.check)


def _host_statement(callbacks: Mapping[str, Callable[..., Any]], compiler: StatementCompiler, stmt: Stmt) -> Run | None:
    match stmt:
        case Launch():
            return _launch(compiler, stmt)
        case CallPython():
            return _call_python(callbacks, stmt)
    return None


def _call_python(callbacks: Mapping[str, Callable[..., Any]], stmt: CallPython) -> Run:
    if stmt.name not in callbacks:
        raise InternalError(f"the kernel calls {stmt.name}, which is not among its callbacks")

    def call(b: Block, mask: Mask) -> None:
        memories = [b.memories[buffer.name] for buffer in stmt.buffers]
        for memory in memories:
            if memory.written is not None:
                memory.written[:] = True
        callbacks[stmt.name](*(memory.data.reshape(memory.shape) for memory in memories))

    return call


def _launch(compiler: StatementCompiler, stmt: Launch) -> Run:
    kernel, site = stmt.kernel, compiler.sites.add(stmt)
    scalars = [compiler.exprs.expr(v, site) for v in stmt.scalars]
    sites = Sites(kernel.name)
    steady = frozenset((*_PLACES, *(v.name for v in kernel.scalars)))
    grid = [Compiler(sites).expr(extent, sites.add(stmt)) for extent in kernel.grid]
    body = StatementCompiler(Compiler(sites, steady), device_statement).stmt(kernel.body)
    code = _Code(kernel, sites, grid, body)

    def launch(b: Block, mask: Mask) -> None:
        assert isinstance(b, _Host)
        _Grid(code, b, [value(b, mask) for value in scalars]).run()

    return launch


@dataclass(frozen=True, slots=True)
class _Code:
    """The code of a device kernel as functions, and what its statements do to memory."""

    kernel: DeviceKernel
    sites: Sites
    grid: list[Code]
    body: Run

    def written(self) -> frozenset[str]:
        """Names of the arrays that threads write."""
        names: set[str] = set()
        for stmt in walk(self.kernel.body):
            match stmt:
                case Store() | AtomicUpdate() | AsyncCopy() | BoxCopy():
                    names.add(stmt.buffer.name)
                case ThreadReduce():
                    names.update(buffer.name for buffer, _ in stmt.targets)
        return frozenset(names)

    def has_warp_barriers(self) -> bool:
        """Whether threads of a warp wait for each other."""
        return any(isinstance(stmt, Barrier) and stmt.scope == "warp" for stmt in walk(self.kernel.body))


class _Grid:
    """One launch: its blocks run one after the other, on arrays of the host."""

    def __init__(self, code: _Code, host: _Host, scalars: list[Any]) -> None:
        self.code = code
        self.host = host
        kernel = code.kernel
        self.scalars = {v.name: value for v, value in zip(kernel.scalars, scalars, strict=True)}
        state = Block(host.clock, dict(self.scalars))
        self.extents = tuple(int(extent(state, None)) for extent in code.grid)
        self.clock = Clock(kernel.block, tuple(max(1, extent) for extent in self.extents))
        self.shared = {b.name: Storage.fresh(b, [int(e) for e in _extents(b, self.scalars)]) for b in kernel.shared}
        self.memories = self._memories()
        self.places: dict[tuple[Any, ...], Any] = {}

    def _memories(self) -> dict[str, Memory]:
        kernel, check, sites = self.code.kernel, self.host.check, self.code.sites
        written, warps = self.code.written(), self.code.has_warp_barriers()
        made: dict[str, Memory] = {}
        for buffer in kernel.params:
            outer = self.host.memories[buffer.name]
            storage = Storage(outer.shape, outer.data, outer.written)
            made[buffer.name] = Memory(buffer, storage, self.clock, sites, check)
            if check and buffer.name in written:
                made[buffer.name].watch(warps, blocks=int(np.prod(self.extents)) > 1)
        for buffer in kernel.shared:
            made[buffer.name] = Memory(buffer, self.shared[buffer.name], self.clock, sites, check)
            if check:
                made[buffer.name].watch(warps, blocks=False)
        return made

    def run(self) -> None:
        """Run the blocks, all or those at the ends."""
        count = int(np.prod(self.extents))
        numbers = sorted({0, count - 1}) if self.host.ends and count else range(count)
        lanes, (x, y, _) = self.clock.lanes, self.code.kernel.block
        values = self.scalars | {
            "threadIdx.x": lanes % x, "threadIdx.y": lanes // x % y, "threadIdx.z": lanes // (x * y)
        }  # fmt: skip
        for number in numbers:
            self._block(number, values)

    def _block(self, number: int, values: dict[str, Any]) -> None:
        kernel, host = self.code.kernel, self.host
        self.clock.start(number)
        for buffer in kernel.shared:
            self.memories[buffer.name].forget()
        for memory in self.memories.values():
            memory.lent = None
            memory.busy = None
        x, y, _ = self.extents
        places = (number % x, number // x % y, number // (x * y))
        values = values | {name: np.int64(place) for name, place in zip(_PLACES, places, strict=False)}
        copies = Copies(self.clock, host.late, host.check)
        block = Block(self.clock, values, dict(self.memories), {}, self.places, {}, copies, host.faults, host.check)
        self.code.body(block, None)
        self.clock.barrier()
        copies.check_all_done(self.code.sites)


def _extents(buffer: Buffer, scalars: Mapping[str, Any]) -> list[Any]:
    compiler = Compiler(Sites(buffer.name))
    state = Block(Clock((1, 1, 1), (1, 1, 1)), dict(scalars))
    return [compiler.expr(extent, 0)(state, None) for extent in buffer.shape]
