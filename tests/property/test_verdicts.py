"""isl's verdict equals the enumeration of all pairs of instances, for legal and illegal schedules alike."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tensorlang.schedule.check import is_legal
from tensorlang.schedule.derive import derive
from tensorlang.testing.strategies import programs
from tensorlang.testing.traces import schedules
from tests.property import enumeration

CASES = settings.get_profile(settings.get_current_profile_name()).max_examples


@settings(max_examples=max(CASES * 2, 200))
@given(data=st.data())
def test_verdict_equals_enumeration(data: st.DataObject) -> None:
    case = data.draw(programs(max_stages=3, max_extent=4))
    schedule = data.draw(schedules(case.outputs, max_steps=6, check=False, threads=True))
    derived = derive(schedule.state)
    assert is_legal(schedule.state) == enumeration.is_legal(derived), schedule.trace.to_python()
