"""An input that a kernel overwrites is what it was before each run, also where its new value is no output."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorlang import te
from tensorlang.autotune.measuring.arrays import Arguments, Arrays
from tensorlang.autotune.measuring.seeded import seeded_inputs
from tensorlang.autotune.task import Task, task_of


@te.hybrid.script
def _smoothed(A: Any) -> Any:
    for i in range(1, A.shape[0] - 1):
        A[i] = (A[i - 1] + A[i] + A[i + 1]) * 0.25
    return A


def _task() -> Task:
    A = te.placeholder((9,), name="A")
    B = te.placeholder((9,), name="B")
    smoothed = _smoothed(A)
    return task_of([A, B, te.compute((9,), lambda i: smoothed[i] * B[i], name="C")], threads=1)


def test_what_is_overwritten_is_renewed() -> None:
    task = _task()
    assert (task.in_place, task.overwritten) == ((-1,), (0,))
    inputs = seeded_inputs(task, 0)
    arrays = Arrays(inputs, (np.zeros(9, np.float32),), 0, 0, task.in_place, task.overwritten)
    arguments = Arguments(arrays)
    arguments.args[0][...] = 7
    assert not np.any(inputs[0] == 7)
    arguments.renew()
    assert np.array_equal(arguments.args[0], inputs[0])
    assert arguments.args[1] is inputs[1]
