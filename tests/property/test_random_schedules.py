"""Random programs under random schedules: every backend equals the unscheduled program."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, note, seed, settings
from hypothesis import strategies as st

from tensorlang import build, te
from tensorlang.schedule import Schedule, Trace
from tensorlang.testing.strategies import ProgramCase, programs
from tensorlang.testing.traces import schedules
from tests.thoroughness import draws

PROFILE = settings.get_profile(settings.get_current_profile_name())
CASES = PROFILE.max_examples


def check(case: ProgramCase, schedule: Schedule, target: str) -> None:
    """Build for a target, run, and compare with the reference: exactly, since all values are small integers."""
    kernel = build(schedule, case.tensors, target=target)
    outputs = [np.full(e.shape, 99, e.dtype) for e in case.expected()]
    kernel(*(a.copy() for a in case.inputs), *outputs)
    for tensor, got, wanted in zip(case.outputs, outputs, case.expected(), strict=True):
        np.testing.assert_array_equal(got, wanted, err_msg=f"{tensor.name} on {target}")


def drawn(
    data: st.DataObject, programs: st.SearchStrategy[ProgramCase], **options: Any
) -> tuple[ProgramCase, Schedule]:
    """A program and a schedule of it, told in full when the test fails."""
    case = data.draw(programs)
    schedule = data.draw(schedules(case.outputs, **options))
    note(f"{case.program.text}{schedule.trace.to_python()}")
    event(f"{len(schedule.trace.steps)} steps")
    return case, schedule


def part_of(number: int) -> Callable[[Any], Any]:
    """Different examples for each part of a test: in a profile without randomness all parts would repeat the first."""
    return seed(number) if PROFILE.derandomize else lambda test: test


@pytest.mark.parametrize("part", range(draws(2, 5)))
def test_schedules_keep_meaning(part: int) -> None:
    @part_of(part)
    @settings(max_examples=CASES)
    @given(data=st.data())
    def run(data: st.DataObject) -> None:
        case, schedule = drawn(data, programs())
        check(case, schedule, "interpreter")
        check(case, schedule, "llvm")

    run()


@settings(max_examples=CASES // 2)
@given(data=st.data())
def test_bound_schedules_keep_meaning(data: st.DataObject) -> None:
    case, schedule = drawn(data, programs(max_stages=2), threads=True)
    check(case, schedule, "interpreter")


@settings(max_examples=CASES)
@given(data=st.data())
def test_traces_round_trip(data: st.DataObject) -> None:
    case, schedule = drawn(data, programs(max_stages=2))
    ops = [t.op for t in case.outputs]
    read = Trace.from_json(json.loads(json.dumps(schedule.trace.to_json())))
    replayed = read.apply(te.create_schedule(ops))
    assert replayed.trace == schedule.trace and replayed.trace.key == schedule.trace.key
    assert replayed.state.stages == schedule.state.stages
    assert replayed.program.text == schedule.program.text
    typed = te.create_schedule(ops)
    exec(schedule.trace.to_python(), {"s": typed, "te": te})
    assert typed.trace.key == schedule.trace.key and typed.state.stages == schedule.state.stages
