"""Stages that compute element by element on a GPU, and those that have no rule: every thread computes its own."""

from __future__ import annotations

from tensorlang import dtypes
from tensorlang.schedule import Schedule
from tensorlang.schedules.anchor import Anchor, accumulator, compute_op
from tensorlang.schedules.cpu.points import contiguous_axes
from tensorlang.schedules.gpu.blocks import (
    ACCESS_BITS,
    BLOCKS,
    THREADS,
    exact_lanes,
    extents,
    fused,
    on_threads,
    product,
    widest_lanes,
)
from tensorlang.target.spec import Target
from tensorlang.te.operation import ComputeOp

_COPIES = 64
"""Steps of a window that are written out one by one."""
_MOST_STEPS = 4
"""Elements that a thread computes one by one where it has no vectors."""
_FEW = 4096
"""Elements of a stage that are too few to make a last vector of part of them."""


def schedule_elementwise(s: Schedule, name: str, target: Target, vectors: bool = True) -> None:
    """Give each thread 16 bytes of the elements of a stage, or fewer where rows are no multiple of that.

    Dimensions that every access runs along as along one row of memory are cut in vectors together; if these are all,
    the last vector may be a part of one.
    """
    op = s.program[name]
    if not isinstance(op, ComputeOp) or not op.axes:
        return
    names = [axis.name for axis in op.axes]
    if op.reduce_axes:
        on_threads(s, name, names, target)
        return
    together = contiguous_axes(op)
    length = product(extents(s, name, names[-together:]))
    whole = together == len(names) and (length is None or length >= _FEW)
    lanes = (widest_lanes(op, names[-1]) if whole else exact_lanes(op, names[-1], length)) if vectors else 1
    if lanes > 1:
        along = fused(s, name, names[-together:])
        step, vector = s[name].split(along, factor=lanes)
        s[name].vectorize(vector)
        names = [*names[:-together], step.name]
    on_threads(s, name, names, target, _steps(s, name, lanes * dtypes.info(op.dtype).bits))


def _steps(s: Schedule, name: str, bits: int) -> int:
    """How many accesses of so many bits a thread has on its way, if there are enough for many blocks."""
    count = product(extents(s, name, [axis.name for axis in s[name].leaf_iter_vars])) or 0
    steps = min(ACCESS_BITS // bits, _MOST_STEPS)
    return max(steps, 1) if count * bits >= THREADS * BLOCKS * ACCESS_BITS else 1


def schedule_points(s: Schedule, anchor: Anchor, threads: int = THREADS) -> None:
    """Give each thread an element of the output, which it computes for itself: neighbours read neighbours.

    What has no rule of its own for GPUs is scheduled so, and windows that slide over each channel.
    """
    op = compute_op(s, anchor.main)
    if not op.axes:
        return
    if not op.reduce_axes and op.num_outputs == 1 and not op.where:
        if anchor.main != anchor.output:
            s[anchor.main].compute_inline()
        schedule_elementwise(s, anchor.output, anchor.target)
        return
    if anchor.main == anchor.output and op.num_outputs > 1:
        on_threads(s, anchor.main, [axis.name for axis in op.axes], anchor.target)
        return
    made = accumulator(s, anchor)
    names = [axis.name for axis in compute_op(s, anchor.output).axes]
    thread = on_threads(s, anchor.output, names, anchor.target, threads=threads)
    s[made].compute_at(s[anchor.output], thread)
    window = [axis.name for axis in compute_op(s, made).reduce_axes]
    count = product(extents(s, made, window))
    if count is not None and count <= _COPIES:
        for loop in window:
            s[made].unroll(loop)


def schedule_pieces(s: Schedule, anchor: Anchor) -> None:
    """Elements that come from one array or another: one a thread, since neighbours may come from different ones."""
    if anchor.main != anchor.output:
        s[anchor.main].compute_inline()
    schedule_elementwise(s, anchor.output, anchor.target, vectors=False)


def schedule_channels(s: Schedule, anchor: Anchor) -> None:
    """Compute what batch norm needs of a channel where its elements are made: four numbers that all threads share."""
    if anchor.main != anchor.output:
        s[anchor.main].compute_inline()
        schedule_elementwise(s, anchor.output, anchor.target)
    elif anchor.main in s.original.outputs:
        schedule_elementwise(s, anchor.main, anchor.target)
    else:
        s[anchor.main].compute_inline()
