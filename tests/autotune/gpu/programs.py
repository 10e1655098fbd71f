"""Programs of all kinds of groups, small, and what candidates of them compute."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import tensorlang
from tensorlang.autotune.measuring.arrays import Arguments, Arrays, difference
from tensorlang.autotune.measuring.jobs import in_program_order
from tensorlang.autotune.measuring.seeded import seeded_inputs
from tensorlang.autotune.search.sketch import Sketch
from tensorlang.autotune.task import Task, arguments_of, create_task
from tensorlang.schedule import Schedule, create_schedule
from tensorlang.te.reference import evaluate, tolerance

OPERATORS = str(Path(__file__).parents[1] / "operators.py")

PROGRAMS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "product": ("matmul", (20, 36, 24)),
    "convolution": (f"{OPERATORS}:convolve_and_clip", (2, 4, 6)),
    "softmax": ("softmax", (6, 40)),
    "total": (f"{OPERATORS}:total", (20000,)),
    "transpose": (f"{OPERATORS}:transpose", (45, 70)),
    "means": (f"{OPERATORS}:channel_means", (3, 5, 6)),
    "running sums": (f"{OPERATORS}:running_sums", (9, 20)),
}


def task_of(program: str, target: str) -> Task:
    """The task of a program by its name here."""
    name, args = PROGRAMS[program]
    return create_task(name, args, target)


def scheduled(task: Task, sketch: Sketch, decisions: dict[str, int]) -> Schedule:
    """The schedule of a candidate, proven."""
    trace: Any = sketch.trace.with_decisions(decisions)
    made: Schedule = trace.apply(create_schedule([t.op for t in task.outputs]), check="final")
    return made


def drawn(sketch: Sketch, count: int, seed: int) -> list[dict[str, int]]:
    """The decisions of candidates at random."""
    rows = sketch.sample(np.random.default_rng(seed), 4 * count)[:count]
    return [sketch.decisions(row) for row in rows]


@cache
def arrays_of(program: str) -> Arrays:
    """Inputs of a program and the outputs that they must give."""
    task = task_of(program, "llvm")
    inputs = seeded_inputs(task, 0)
    values = evaluate(task.program, in_program_order(task.program, task.inputs, inputs))
    outputs = tuple(values[t.name] for t in task.outputs)
    return Arrays(inputs, outputs, *tolerance(task.program), task.in_place, task.overwritten)


def wrong(program: str, task: Task, schedule: Schedule, target: str) -> str:
    """What is wrong with the outputs of a schedule that is built for a target; empty when nothing is."""
    arrays = arrays_of(program)
    given = Arguments(arrays)
    given.renew()
    tensorlang.build(schedule, arguments_of(task.tensors), target=target)(*given.args)
    return difference(arrays, given.outputs)
