"""The library's schedule of a program as a sketch of its own: measured first, so that tuning never falls behind it."""

from __future__ import annotations

from tensorlang import topi
from tensorlang.autotune.search.sketch import Sketch
from tensorlang.autotune.space.draft import Draft, sketch_of
from tensorlang.autotune.space.opened import device_limits, opened
from tensorlang.autotune.task import Task
from tensorlang.errors import TensorlangError
from tensorlang.schedule import Trace
from tensorlang.schedules.table import RULES
from tensorlang.te.operation import ComputeOp

SEED = "library"


def seed_sketches(task: Task) -> list[Sketch]:
    """`topi.schedule` of the task with the factors of its splits open; none without an operator of the library.

    For a GPU the schedule is closed, and tuned by the rules only.
    """
    if not any(isinstance(op, ComputeOp) and op.tag in RULES for op in task.program.ops):
        return []
    try:
        trace = topi.schedule(task.outputs, task.target, tuned=False).trace
    except TensorlangError:
        return []
    if task.target.can.device:
        return [_as_it_is(task, trace)]
    draft, start = opened(task, trace)
    return [sketch_of(SEED, draft, device_limits(task, draft.scheduled, start), start)]


def _as_it_is(task: Task, trace: Trace) -> Sketch:
    """A schedule as the only candidate. On a GPU its numbers belong together: threads, tiles, layouts of copies."""
    draft = Draft.of(task.outputs)
    for step in trace.steps:
        draft.apply(step)
    return sketch_of(SEED, draft, start={})
