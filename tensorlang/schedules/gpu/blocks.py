"""Blocks of threads: how loops are shared among them, and how wide a thread reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tensorlang import dtypes
from tensorlang.ir.expr import Load, variables, walk
from tensorlang.schedule import Decision, Schedule
from tensorlang.schedules.room import is_several
from tensorlang.target.spec import GpuLimits, Target
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import ComputeOp

ACCESS_BITS = 128
"""The widest load or store of one thread."""
THREADS = 256
"""Threads of a block where nothing asks for another number: eight such blocks fill a multiprocessor."""
WARP = 32
"""Threads that run together, and combine their results without a barrier."""
BLOCKS = 264
"""Blocks that give work to every multiprocessor of a large GPU, two to each."""
_GRID = ("blockIdx.x", "blockIdx.y", "blockIdx.z")


def limits(target: Target) -> GpuLimits:
    """What a block may use on a target; the least that every GPU has where it is not known."""
    return target.gpu or GpuLimits()


def extents(s: Schedule, stage: str, loops: Sequence[str]) -> list[int | None]:
    """The extents of loops as numbers; None for those that are symbolic."""
    return [extent_of(s.state.axis(stage, loop).extent) for loop in loops]


def product(numbers: Sequence[int | None]) -> int | None:
    """The product of extents; None where one is symbolic."""
    known = [n for n in numbers if n is not None]
    return prod(known) if len(known) == len(numbers) else None


def whole_warps(threads: int) -> int:
    """The least number of threads of whole warps that is at least another; one warp where that is none."""
    return max(-(-threads // WARP), 1) * WARP


def power_of_two(number: int) -> int:
    """The largest power of two that is at most a number, which is at least 1."""
    return 1 << number.bit_length() - 1


def widest_lanes(op: ComputeOp, along: str) -> int:
    """Neighbouring elements along an axis that are 16 bytes of the widest array that a stage reads or writes along it.

    Arrays that are read at the same element all along count for nothing.
    """
    loads = [node for body in op.body for node in walk(body) if isinstance(node, Load)]
    dtypes_along = [n.buffer.dtype for n in loads if any(along in variables(i) for i in n.index)]
    own = op.dtypes if along in {axis.name for axis in op.axes} else ()
    widest = max((dtypes.info(dtype).bits for dtype in (*own, *dtypes_along)), default=ACCESS_BITS)
    return max(1, ACCESS_BITS // max(widest, 8))


def exact_lanes(op: ComputeOp, along: str, length: int | None) -> int:
    """As many of the `widest_lanes` as divide a length: one, if it is symbolic."""
    lanes = widest_lanes(op, along)
    while lanes > 1 and (length is None or length % lanes):
        lanes //= 2
    return lanes


def groups(s: Schedule, stage: str, loops: Sequence[str]) -> list[list[str]]:
    """Neighbouring loops that can be fused, outermost first: all but the first of each have a known extent."""
    found: list[list[str]] = []
    for loop, extent in zip(loops, extents(s, stage, loops), strict=True):
        if found and extent is not None:
            found[-1].append(loop)
        else:
            found.append([loop])
    return found


def fused(s: Schedule, stage: str, loops: Sequence[str]) -> str:
    """One loop for several neighbouring ones."""
    return loops[0] if len(loops) == 1 else s[stage].fuse(*loops).name


def on_blocks(s: Schedule, stage: str, loops: Sequence[str]) -> str:
    """Give every iteration of the outermost loops of a stage a block of its own; the innermost of these loops.

    Loops of symbolic extents stay apart, up to three: the first may have as many iterations as there are blocks along
    x, the others 65535. What is left over runs inside each block.
    """
    made = [fused(s, stage, group) for group in groups(s, stage, loops)]
    for loop, tag in zip(made, _GRID, strict=False):
        s[stage].bind(loop, tag)
    return made[-1]


def on_threads(
    s: Schedule, stage: str, loops: Sequence[str], target: Target, steps: int = 1, threads: int = THREADS
) -> str:
    """Give every iteration of the outermost loops of a stage a thread of its own; the loop of threads.

    A block has so many `threads`, or fewer where a target or the loops have fewer, unless that is a decision. With
    several `steps`, a thread has so many, a block apart: what it loads for them is on its way at the same time.
    """
    *outer, last = [fused(s, stage, group) for group in groups(s, stage, loops)]
    extent = extents(s, stage, [last])[0]
    if not isinstance(threads, Decision):
        most = min(threads, limits(target).max_threads)
        threads = most if extent is None else min(most, whole_warps(extent))
    block, inner = s[stage].split(last, factor=threads)
    if is_several(steps):
        block, step = s[stage].split(block, factor=steps)
        s[stage].unroll(step)
    on_blocks(s, stage, [*outer, block.name])
    s[stage].bind(inner, "threadIdx.x")
    return inner.name
