"""Programs with order in them: isl's verdict equals the enumeration of all pairs, and legal schedules keep meaning."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import event, given, note, settings
from hypothesis import strategies as st

from tensorlang.errors import Instance, ScheduleError
from tensorlang.schedule import Schedule
from tensorlang.schedule.check import is_legal, verify
from tensorlang.schedule.derive import Derived, derive
from tensorlang.testing.check import check_schedule
from tensorlang.testing.ordered_programs import OrderedCase, ordered_programs
from tensorlang.testing.traces import schedules
from tests.property import enumeration
from tests.property.test_random_schedules import part_of

VERDICTS = {"nightly": 10_000}.get(settings.get_current_profile_name(), 150)
"""Cases of each of the two parts of a test."""


def drawn(data: st.DataObject, indirect: bool, **options: Any) -> tuple[OrderedCase, Schedule]:
    """A program and a schedule of it, told in full when the test fails."""
    case = data.draw(ordered_programs(data=indirect))
    schedule = data.draw(schedules(case.outputs, **options))
    note(f"{case.program.text}{schedule.trace.to_python()}")
    event(f"{len(schedule.trace.steps)} steps")
    return case, schedule


def same(event: enumeration.Event, instance: Instance) -> bool:
    """Whether an enumerated instance is the one that a witness names."""
    statement, values = event
    time = tuple(values[p] if isinstance(p, str) else p for p in statement.time)
    return (statement.name, time) == (instance.statement, instance.time)


def convicts(error: ScheduleError, derived: Derived) -> bool:
    """Whether the instances of a witness are a dependent pair in the wrong order, for the sizes that it names."""
    witness = error.witness
    if witness is None:  # of a read that never runs
        return not enumeration.covered(derived)
    sizes = dict(witness.sizes)
    if witness.source is None:
        return not enumeration.covered(derived, sizes)
    first, then = witness.source, witness.sink
    found = enumeration.broken(derived, sizes)
    return any({same(a, first), same(b, then)} == {True} or {same(b, first), same(a, then)} == {True} for a, b in found)


@pytest.mark.parametrize("part", range(2))
def test_verdict_equals_enumeration(part: int) -> None:
    verdicts: Counter[bool] = Counter()

    @part_of(part)
    @settings(max_examples=VERDICTS)
    @given(data=st.data())
    def run(data: st.DataObject) -> None:
        case, schedule = drawn(data, part == 1, max_steps=5, check=False, threads=True)
        derived = derive(schedule.state)
        legal = is_legal(schedule.state)
        event("legal" if legal else "illegal")
        verdicts[legal] += 1
        if legal:
            assert all(enumeration.is_legal(derived, sizes) for sizes in case.sizes)
        else:
            with pytest.raises(ScheduleError) as caught:
                verify(schedule.state)
            assert convicts(caught.value, derived), caught.value

    run()
    assert min(verdicts[True], verdicts[False]) > sum(verdicts.values()) // 6, verdicts


@pytest.mark.parametrize("part", range(2))
def test_legal_schedules_keep_meaning(part: int) -> None:
    @part_of(part)
    @settings(max_examples=VERDICTS * 2 // 3)
    @given(data=st.data())
    def run(data: st.DataObject) -> None:
        case, schedule = drawn(data, part == 1)
        for sizes in case.sizes[-2:]:
            check_schedule(schedule, case.args, sizes, inputs=case.inputs(sizes))

    run()
