"""`topi.schedule` of random programs of anyone: never refused, and right."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from tensorlang import topi
from tensorlang.testing.check import check_schedule
from tensorlang.testing.ordered_programs import ordered_programs
from tensorlang.testing.strategies import ProgramCase, programs
from tests.property.test_random_schedules import CASES, check
from tests.property.test_symbolic_schedules import PROGRAMS, SIZES

TARGETS = st.sampled_from(["llvm -num-cores=1", "llvm -num-cores=2", "llvm -mcpu=haswell -num-cores=4"])


@settings(max_examples=CASES)
@given(case=programs(), target=TARGETS)
def test_programs_of_numbers(case: ProgramCase, target: str) -> None:
    schedule = topi.schedule(case.outputs, target, tuned=False)
    note(f"{case.program.text}{schedule.trace.to_python()}")
    check(case, schedule, "llvm")


@settings(max_examples=CASES // 2)
@given(case=ordered_programs(), target=TARGETS)
def test_ordered_statements(case: Any, target: str) -> None:
    schedule = topi.schedule(case.outputs, target, tuned=False)
    note(f"{case.program.text}{schedule.trace.to_python()}")
    check_schedule(schedule, case.args, case.sizes[-1], inputs=case.inputs(case.sizes[-1]))


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_any_size(name: str) -> None:
    args: Any = PROGRAMS[name]()
    schedule = topi.schedule(list(args[-1:]), tuned=False)
    used = {v.name for v in schedule.original.sizes}
    for sizes in SIZES:
        check_schedule(schedule, args, {k: v for k, v in sizes.items() if k in used})
