"""isl's verdict equals the enumeration of all pairs of instances, for legal and illegal schedules alike."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import event, given, note, settings
from hypothesis import strategies as st

from tensorlang.schedule.check import is_legal
from tensorlang.schedule.derive import derive
from tensorlang.testing.strategies import programs
from tensorlang.testing.traces import schedules
from tests.property import enumeration
from tests.property.test_random_schedules import CASES, part_of


@pytest.mark.parametrize("part", range(2))
def test_verdict_equals_enumeration(part: int) -> None:
    verdicts: Counter[bool] = Counter()

    @part_of(part)
    @settings(max_examples=max(CASES, 40))
    @given(data=st.data())
    def run(data: st.DataObject) -> None:
        case = data.draw(programs(max_stages=3, max_extent=4))
        schedule = data.draw(schedules(case.outputs, max_steps=6, check=False, threads=True))
        note(f"{case.program.text}{schedule.trace.to_python()}")
        legal = enumeration.is_legal(derive(schedule.state))
        event("legal" if legal else "illegal")
        verdicts[legal] += 1
        assert is_legal(schedule.state) == legal

    run()
    assert min(verdicts[True], verdicts[False]) > sum(verdicts.values()) // 15, verdicts
