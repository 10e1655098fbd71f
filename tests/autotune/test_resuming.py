"""A search goes on from records of which the fastest is proven; what failed is known to have failed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tensorlang import te
from tensorlang.autotune.records.record import Status, TuningRecord
from tensorlang.autotune.resuming import _MOST_REFUSED, resumable
from tensorlang.errors import BadArgument
from tensorlang.schedule import create_schedule
from tensorlang.schedule.history import RecordSkipped
from tensorlang.te.program import Program

A = te.placeholder((4,), name="A")
PROGRAM: Program = create_schedule(te.compute((4,), lambda i: A[i] + 1, name="B").op).program


def timed(record: TuningRecord, seconds: float, *trace: str) -> TuningRecord:
    return replace(record, trace=list(trace), seconds=(seconds,))


def refusing(*steps: str) -> Callable[[TuningRecord], None]:
    def prove(record: TuningRecord) -> None:
        if set(steps) & set(record.trace):
            raise BadArgument("", "no such axis")

    return prove


def test_the_steps_of_a_refused_record_are_no_time_to_go_on_from(record: TuningRecord) -> None:
    bad, again, good = (timed(record, t, *steps) for t, *steps in ((1e-6, "bad"), (3e-6, "bad"), (2e-6, "good")))
    failed = replace(bad, status=Status.RUN_ERROR, seconds=())
    with pytest.warns(RecordSkipped, match="no such axis"):
        left = resumable([bad, again, failed, good], PROGRAM, "B", refusing("bad"))
    assert left == [failed, good]


def test_where_very_many_are_refused_only_failures_are_left(record: TuningRecord) -> None:
    many = [timed(record, n * 1e-6, f"bad {n}") for n in range(1, _MOST_REFUSED + 3)]
    failed = replace(record, status=Status.RUN_ERROR, seconds=())
    with pytest.warns(RecordSkipped):
        left = resumable([failed, *many], PROGRAM, "B", refusing(*(r.trace[0] for r in many)))
    assert left == [failed]
