"""Records: what a measurement leaves behind, in JSON and back."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tensorlang.autotune.records.fingerprint import host, versions
from tensorlang.autotune.records.log import read_log
from tensorlang.autotune.records.record import BY_STATUS, SCHEMA, Status, TuningRecord, Verdict
from tensorlang.autotune.records.upgrades import UPGRADES
from tensorlang.errors import RecordError
from tensorlang.schedule import Trace

DATA = Path(__file__).parent / "data"


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


def test_a_target_that_is_not_known_here_is_told_by_its_data(record: TuningRecord) -> None:
    assert replace(record, target={"kind": "llvm", "cpu": "haswell"}).target_text == "llvm -mcpu=haswell"
    assert replace(record, target={"kind": "llvm", "gpu": 3}).target_text == '{"kind": "llvm", "gpu": 3}'


def _without(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda data: data.pop(name)


def _with(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda data: data.__setitem__(name, value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_without("trace"), "KeyError 'trace'"),
        (_without("schema"), "no field 'schema'"),
        (_with("schema", SCHEMA + 1), f"schema {SCHEMA + 1}; this version reads schemas 1 to {SCHEMA}: update"),
        (_with("schema", "x"), "schema 'x'; this version reads schemas 1 to .: is it of another program?"),
        (_with("schema", []), "malformed"),
        (_with("status", "splendid"), "splendid"),
        (_with("verdict", {}), "KeyError 'legal'"),
        (_with("seconds", [1.0, -1.0]), "seconds must be positive"),
        (_with("seconds", [1.0, math.inf]), "seconds must be positive and finite"),
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


def test_a_log_of_schema_1_is_read_as_todays(record: TuningRecord) -> None:
    """Written by a tuner of schema 1: no program text, no verdict; the status tells what was proven."""
    log = read_log(DATA / "schema1.jsonl")
    assert (len(log.records), log.torn, log.foreign) == (3, 0, 0)
    first, stopped, third = log.records
    assert {r.schema for r in log.records} == {SCHEMA}
    assert (first.workload.program, first.workload.sizes, first.workload.key) == ("", (), "a88de84eed50de22")
    assert (first.ok, first.checked, first.conditions, first.verdict) == (True, True, {}, Verdict(legal=True))
    assert (stopped.status, stopped.verdict.legal) == (Status.TIMEOUT, None)
    assert math.isnan(third.estimate)
    assert first.decisions == Trace.from_json(first.trace).decisions
    assert TuningRecord.from_json(json.loads(json.dumps(first.to_json()))) == first


def test_every_older_schema_has_its_step() -> None:
    assert list(UPGRADES) == list(range(1, SCHEMA))


def test_a_verdict_tells_what_it_rests_on(record: TuningRecord) -> None:
    facts = [
        {"step": "assume", "fact": "range", "array": "idx", "low": 0, "high": 8},
        {"step": "assume", "fact": "injective", "array": "idx", "low": None, "high": None},
    ]
    workload = replace(record.workload, sizes=(("n", 128),))
    stated = replace(record, workload=workload, trace=[*record.trace, *facts], verdict=BY_STATUS)
    assert stated.verdict == Verdict(True, ("n",), ("range idx 0 8", "injective idx"))
    assert str(workload) == "matmul(4, 5, 6, float32; n = 128)"
    assert TuningRecord.from_json(json.loads(json.dumps(stated.to_json()))) == stated


@pytest.mark.parametrize(
    ("status", "legal"),
    [(Status.NOISY, True), (Status.WRONG_ANSWER, True), (Status.ILLEGAL, False), (Status.CRASH, None)],
)
def test_a_status_implies_a_verdict_unless_one_is_given(
    record: TuningRecord, status: Status, legal: bool | None
) -> None:
    assert replace(record, status=status, verdict=BY_STATUS).verdict.legal is legal
    assert replace(record, status=status, verdict=Verdict(legal=None)).verdict.legal is None


def test_a_fingerprint_names_the_device() -> None:
    found = host(peak_gflops=123.456)
    assert found["peak_gflops"] == 123.5
    assert "peak_gflops" not in host()
    assert {"name", "system", "release", "machine", "cpu", "cores", "caches", "memory"} <= set(found)
    assert found["cores"] >= 1
    assert len(found["caches"]) >= 1
    assert versions()["numpy"].split(".")[0].isdigit()


def test_every_field_is_documented(record: TuningRecord) -> None:
    page = (Path(__file__).parents[3] / "docs" / "records.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    data = replace(record, settings={"tile": [1, 2]}).to_json()
    names = set(data) - {"workload", "verdict"}
    names |= {f"workload.{name}" for name in data["workload"]} | {f"verdict.{name}" for name in data["verdict"]}
    documented = {name for row in rows for name in re.findall(r"`([\w.]+)`", row)}
    assert names <= documented
    assert f"Schema {SCHEMA}." in page
    assert all(f"`{status}`" in page for status in Status)


def test_settings_are_what_a_template_chose(record: TuningRecord) -> None:
    assert "settings" not in record.to_json()
    assert record.choices == record.decisions
    settings = {"tile": [-1, 16], "kind": "vec", "note": None}
    chosen = replace(record, decisions={"tile": 4, "kind": 1, "idle": 0}, settings=settings)
    assert chosen.choices == {"tile": [-1, 16], "kind": "vec", "idle": 0, "note": None}
    assert TuningRecord.from_json(json.loads(json.dumps(chosen.to_json()))) == chosen
    with pytest.raises(RecordError, match="malformed tuning record"):
        TuningRecord.from_json(chosen.to_json() | {"settings": 7})
