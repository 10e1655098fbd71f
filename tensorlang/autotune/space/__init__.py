"""Search spaces: rules that make sketches of a program."""

from __future__ import annotations

from tensorlang.autotune.search.sketch import Sketch
from tensorlang.autotune.space.contraction import contraction_sketches
from tensorlang.autotune.space.structure import heaviest, stages_of
from tensorlang.autotune.space.tiled import tiled_sketches
from tensorlang.autotune.task import Task

__all__ = ["sketches_of"]


def sketches_of(task: Task) -> list[Sketch]:
    """The search space of a task: sketches of its heaviest stage by the first rule that knows it."""
    stages = stages_of(task)
    main = heaviest(stages)
    if len(stages) == 1 and (found := contraction_sketches(task, main)):
        return found
    return tiled_sketches(task, stages, main)
