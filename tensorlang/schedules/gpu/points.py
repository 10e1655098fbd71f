"""Results that a thread makes alone on a GPU: of windows, and of what has no form of its own."""

from __future__ import annotations

from tensorlang.schedule import Schedule
from tensorlang.schedules.anchor import Anchor, accumulator, compute_op
from tensorlang.schedules.gpu.blocks import THREADS, extents, on_threads, product
from tensorlang.schedules.gpu.elements import schedule_elementwise
from tensorlang.schedules.room import Room

_COPIES = 64
"""Steps of a window that are written out one by one."""


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
        schedule_elementwise(Room(s, anchor.target, anchor.output, closed=True), anchor.output)
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
