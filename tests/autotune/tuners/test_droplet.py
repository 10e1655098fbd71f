"""Descent on the grid of knobs: it goes where times fall, and ends where nothing is left to look at."""

from __future__ import annotations

import pytest

from tensorlang.autotune import TemplateTask
from tensorlang.autotune.templates.task import create
from tensorlang.autotune.tuner import DropletTuner
from tensorlang.errors import DefinitionError

from ..templates.programs import matmul
from .fakes import fake_measurer


@pytest.fixture(scope="module")
def task() -> TemplateTask:
    return create(matmul, args=(16, 24, 12), target="llvm -num-cores=1")


def test_it_descends(task: TemplateTask) -> None:
    measurer, fake = fake_measurer()
    tuner = DropletTuner(task)
    tuner.search(measurer, 120)
    assert len({r.trace_key for r in tuner.records}) == tuner.trials == len(fake.seen)
    assert tuner.best is not None and tuner.best.seconds < tuner.records[0].median / 3
    tuner.reset()
    assert tuner.trials == 0 and tuner.next_batch(1)[0].index == 0


def test_it_looks_at_neighbours_then_farther_away(task: TemplateTask) -> None:
    tuner = DropletTuner(task, start_position=[1] * len(task.config_space.shape))
    (start,) = tuner.next_batch(8)
    assert task.config_space.point2knob(start.index) == tuner.start_position
    near = tuner.next_batch(2000)
    steps = [[a - 1 for a in task.config_space.point2knob(c.index)] for c in near]
    assert all({abs(a) for a in step} <= {0, 1} and any(step) for step in steps) and len(steps) == len(
        set(map(tuple, steps))
    )
    far = tuner.next_batch(1)[0]
    assert max(abs(a - 1) for a in task.config_space.point2knob(far.index)) == 2


def test_a_time_that_may_be_chance_is_not_faster(task: TemplateTask) -> None:
    tuner = DropletTuner(task)
    tuner._costs = (1.0, 1.1, 0.9)
    assert not tuner._is_faster((1.0, 1.08, 0.85)) and tuner._is_faster((0.5, 0.55, 0.52)) and tuner._is_faster((0.8,))
    assert not tuner._is_faster((1.2, 1.2))


def test_a_start_is_a_configuration(task: TemplateTask) -> None:
    with pytest.raises(DefinitionError, match="start_position has a candidate of each knob"):
        DropletTuner(task, start_position=[0])
    with pytest.raises(DefinitionError, match="start_position has a candidate of each knob"):
        DropletTuner(task, start_position=[99] * len(task.config_space.shape))
