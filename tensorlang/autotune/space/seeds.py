"""The library's schedule of a program as a sketch of its own: measured first, so that tuning never falls behind it."""

from __future__ import annotations

from tensorlang import topi
from tensorlang.autotune.search.sketch import Sketch
from tensorlang.autotune.space.draft import Draft, sketch_of
from tensorlang.autotune.space.opened import device_limits, opened
from tensorlang.autotune.task import Task
from tensorlang.errors import TensorlangError
from tensorlang.schedule import Trace
from tensorlang.schedules.forms import forms_of
from tensorlang.schedules.recognise import groups_of
from tensorlang.schedules.table import rule_of
from tensorlang.te.operation import ComputeOp

SEED = "library"


def library_sketch(task: Task) -> Sketch | None:
    """`topi.schedule` of the task, which tuning measures first; None where it gives none.

    With the factors of its splits open where the program has an operator of the library: they are tuned, too. For a GPU
    the schedule is closed, and tuned by the rules only.
    """
    try:
        trace = topi.schedule(task.outputs, task.target, tuned=False).trace
        if task.target.can.device or not is_of_library(task):
            return _as_it_is(task, trace)
        draft, start = opened(task, trace)
        return sketch_of(SEED, draft, device_limits(task, draft.scheduled, start), start)
    except TensorlangError:
        return None


def is_of_library(task: Task) -> bool:
    """Whether the program has an operator that the library has a rule or a plan for."""
    forms = (form for group in groups_of(task.program) for form in forms_of(task.target, group))
    tags = {op.tag for op in task.program.ops if isinstance(op, ComputeOp)}
    return any(form.planned for form in forms) or any(rule_of(tag, task.target) is not None for tag in tags)


def _as_it_is(task: Task, trace: Trace) -> Sketch:
    """A schedule as the only candidate. On a GPU its numbers belong together: threads, tiles, layouts of copies."""
    draft = Draft.of(task.outputs)
    for step in trace.steps:
        draft.apply(step)
    return sketch_of(SEED, draft, start={})
