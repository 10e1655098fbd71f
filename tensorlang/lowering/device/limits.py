"""Limits of a GPU, asked before anything is compiled: threads and memory of a block, registers of a thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from tensorlang import dtypes
from tensorlang.errors import TargetError
from tensorlang.ir.expr import Buffer, Const
from tensorlang.ir.fragment import Fragment
from tensorlang.ir.stmt import Allocate, DeviceKernel, Kernel, Launch, Stmt, children, walk
from tensorlang.ir.warp_arrays import WARP, fragments, registers
from tensorlang.target.spec import GpuLimits, Target

_WORD = 4  # bytes of a register
_AXES = "xyz"


def check_limits(kernel: Kernel, target: Target) -> None:
    """Raise TargetError, with what is asked and what is allowed, unless a GPU has room for every kernel launched."""
    if target.gpu is None:
        return
    for stmt in walk(kernel.body):
        if isinstance(stmt, Launch):
            _check(stmt.kernel, target, target.gpu)


def _check(kernel: DeviceKernel, target: Target, limits: GpuLimits) -> None:
    _check_threads(kernel, target, limits)
    shared = [(b, buffer_bytes(b)) for b in kernel.shared]
    total = sum(size for _, size in shared)
    if total > limits.shared_bytes:
        asked = ", ".join(f"{b} {size}" for b, size in shared)
        more = f", or 'interpreter -max_shared_memory_per_block={total}'" if target.can.chosen_limits else ""
        raise TargetError(
            f"{kernel.name} needs {total} bytes of shared memory in a block, and {target} allows "
            f"{limits.shared_bytes}: {asked}; use smaller tiles, or narrower elements{more}"
        )
    held = _most_held(kernel.body, fragments(kernel.body))
    words = sum(count for _, count in held)
    if limits.thread_registers and words > limits.thread_registers:
        asked = ", ".join(f"{b} {count}" for b, count in held)
        raise TargetError(
            f"{kernel.name} needs at least {words} registers in each thread for its local arrays, and {target} allows "
            f"{limits.thread_registers}: {asked}; give each thread a smaller tile, or put an array into shared memory"
        )


def _check_threads(kernel: DeviceKernel, target: Target, limits: GpuLimits) -> None:
    threads = prod(kernel.block)
    if threads > limits.max_threads:
        extents = " x ".join(map(str, kernel.block))
        raise TargetError(
            f"{kernel.name} needs {threads} threads in a block ({extents}), and {target} allows {limits.max_threads}; "
            "split a loop bound to threadIdx by a smaller factor"
        )
    for axis, asked, allowed in zip(_AXES, kernel.block, limits.block, strict=True):
        if asked > allowed:
            raise TargetError(
                f"{kernel.name} needs {asked} threads along threadIdx.{axis}, and {target} allows {allowed}; "
                f"bind the loop to threadIdx.x, or split it by a smaller factor"
            )


def buffer_bytes(buffer: Buffer) -> int:
    """Bytes of an array of constant shape."""
    return _elements(buffer.shape) * dtypes.info(buffer.dtype).bytes


def _elements(shape: Sequence[object]) -> int:
    return prod(int(extent.value) for extent in shape if isinstance(extent, Const))


def _words(buffer: Buffer, lanes: Mapping[str, Fragment]) -> int:
    """Registers of a thread that an array takes."""
    if buffer.name in lanes:
        return registers(buffer, lanes[buffer.name])
    return -(-buffer_bytes(buffer) // _WORD)


def _most_held(stmt: Stmt, lanes: Mapping[str, Fragment]) -> list[tuple[Buffer, int]]:
    """The arrays of a thread that are alive together where they take most registers, with how many."""
    found = (_most_held(child, lanes) for child in children(stmt))
    inside = max(found, key=lambda held: sum(count for _, count in held), default=[])
    if isinstance(stmt, Allocate) and stmt.buffer.scope in ("local", WARP):
        return [(stmt.buffer, _words(stmt.buffer, lanes)), *inside]
    return inside
