"""Records: what a measurement leaves behind, in JSON and back."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tensorlang.autotune.records.record import SCHEMA, Status, TuningRecord
from tensorlang.errors import RecordError


def test_a_record_survives_json(record: TuningRecord) -> None:
    assert TuningRecord.from_json(json.loads(json.dumps(record.to_json()))) == record


def test_an_unknown_estimate_is_null_in_json(record: TuningRecord) -> None:
    data = replace(record, estimate=math.nan).to_json()
    assert data["estimate"] is None
    assert math.isnan(TuningRecord.from_json(data).estimate)


def test_speed_counts_operations_at_the_median(record: TuningRecord) -> None:
    timed = replace(record, seconds=(3.0, 1.0, 2.0), workload=replace(record.workload, flops=8e9))
    assert timed.median == 2.0
    assert timed.gflops == 4.0


def test_what_was_never_timed_has_no_speed(record: TuningRecord) -> None:
    failed = replace(record, seconds=(), status=Status.CRASH)
    assert (failed.ok, failed.median, failed.gflops) == (False, math.inf, 0.0)


def _without(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda data: data.pop(name)


def _with(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda data: data.__setitem__(name, value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_without("trace"), "KeyError 'trace'"),
        (_without("schema"), "no field 'schema'"),
        (_with("schema", SCHEMA + 1), f"schema {SCHEMA + 1}; this version reads schema {SCHEMA}"),
        (_with("status", "splendid"), "splendid"),
        (_with("seconds", [1.0, -1.0]), "seconds must be positive"),
        (_with("workload", None), "TypeError"),
    ],
)
def test_a_malformed_record_is_refused(
    record: TuningRecord, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    data = record.to_json()
    change(data)
    with pytest.raises(RecordError, match=message):
        TuningRecord.from_json(data)
