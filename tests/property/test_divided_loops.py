"""Loops under conditions that divide them, under random schedules: every kernel equals the unscheduled program."""

from __future__ import annotations

from typing import Any

from hypothesis import given, note, settings
from hypothesis import strategies as st

from tensorlang.testing.check import check_schedule
from tensorlang.testing.divided import boards
from tensorlang.testing.strategies import programs
from tensorlang.testing.traces import schedules

NIGHTLY = settings.get_current_profile_name() == "nightly"
FAVOURED = ("split", "fuse", "fuse", "reorder", "skew", "affine", "unroll", "vectorize", "reverse")


@settings(max_examples=5_000 if NIGHTLY else 12)
@given(data=st.data())
def test_boards_keep_meaning(data: st.DataObject) -> None:
    case = data.draw(boards())
    schedule = data.draw(schedules(case.outputs, max_steps=6, favoured=FAVOURED))
    note(f"{case.program.text}{schedule.trace.to_python()}")
    for sizes in case.sizes if NIGHTLY else case.sizes[:1]:
        check_schedule(schedule, case.args, sizes, targets=("interpreter",), inputs=case.inputs(sizes))


@settings(max_examples=2_000 if NIGHTLY else 6)
@given(data=st.data())
def test_reductions_over_parts_keep_meaning(data: st.DataObject) -> None:
    case = data.draw(programs(("int32",), max_stages=2, divided=True))
    schedule = data.draw(schedules(case.outputs, max_steps=6, favoured=FAVOURED))
    note(f"{case.program.text}{schedule.trace.to_python()}")
    inputs: dict[str, Any] = {t.name: array for t, array in zip(case.placeholders, case.inputs, strict=True)}
    check_schedule(schedule, case.tensors, targets=("interpreter",), inputs=inputs)
