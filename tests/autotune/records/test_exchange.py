"""Records on their way out and in: tables, documents, Python, other formats, and two logs side by side."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tensorlang.autotune import Status, TuningRecord, create_task, replay
from tensorlang.autotune.records.comparison import compare_logs
from tensorlang.autotune.records.export import python_module, to_csv, to_json, to_python, unproven_text
from tensorlang.autotune.records.formats import FORMATS, Format, read_any, register_format
from tensorlang.autotune.records.importing import append_missing
from tensorlang.autotune.records.log import Log, read_log
from tensorlang.autotune.records.lookup import Loaded
from tensorlang.errors import RecordError
from tensorlang.schedule import create_schedule

from .hand import TARGET, hand_record, write_log

DATA = Path(__file__).parent / "data"


def test_a_table_has_a_line_for_every_record() -> None:
    failed = hand_record(status=Status.CRASH, error="it said:\n\"no\", 'never'")
    failed = replace(failed, seconds=())
    rows = list(csv.DictReader(io.StringIO(to_csv([hand_record(), failed]))))
    assert [row["status"] for row in rows] == ["ok", "crash"]
    assert float(rows[0]["median_seconds"]) == 1e-3
    assert rows[0]["workload"] == "matmul(24, 40, 16, float32)"
    assert rows[1]["median_seconds"] == rows[1]["gflops"] == ""
    assert rows[1]["error"] == failed.error


def test_a_document_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text(to_json([hand_record(), hand_record((8, 8, 8))]))
    assert read_any(path).records == (hand_record(), hand_record((8, 8, 8)))


def test_exported_python_makes_the_schedules() -> None:
    own = hand_record((8, 8, 8))
    own = replace(own, workload=replace(own.workload, name="dir/my-ops.py:class", args=()))
    names: dict[str, Any] = {}
    exec(compile(to_python([hand_record(), hand_record(seconds=1.0), own]), "exported", "exec"), names)
    assert "schedule_class" not in names  # what would have to be run to prove it is left out
    proven = replay(hand_record(), create_task("matmul", (24, 40, 16), TARGET, threads=1))
    records = [(hand_record(), proven), (hand_record(seconds=1.0), proven), (own, proven)]
    exec(compile(python_module(records), "exported", "exec"), names)
    assert {"matmul_24_40_16_float32", "matmul_24_40_16_float32_1", "schedule_class"} <= set(names)
    task = create_task("matmul", (24, 40, 16), TARGET)
    made = names["matmul_24_40_16_float32"](create_schedule([t.op for t in task.outputs]))
    assert made.trace.key == hand_record().trace_key
    assert "matmul(24, 40, 16, float32)" in names["matmul_24_40_16_float32"].__doc__


def test_a_format_is_told_by_the_file(tmp_path: Path) -> None:
    assert len(read_any(DATA / "schema1.jsonl").records) == 3
    (tmp_path / "notes").write_text("buy milk\n")
    with pytest.raises(RecordError, match=r"cannot tell what wrote .*; formats that can be imported: tensorlang, json"):
        read_any(tmp_path / "notes")
    with pytest.raises(RecordError, match="unknown format 'punch cards'; there are tensorlang, json"):
        read_any(tmp_path / "notes", "punch cards")
    with pytest.raises(RecordError, match="cannot read"):
        read_any(tmp_path / "none")
    (tmp_path / "bad.json").write_text('[{"schema": 77}, ')
    with pytest.raises(RecordError, match="is no JSON document"):
        read_any(tmp_path / "bad.json")
    (tmp_path / "bad.json").write_text('[{"schema": 77}]')
    with pytest.raises(RecordError, match="holds no tuning records: record of schema 77"):
        read_any(tmp_path / "bad.json")


def test_a_format_can_be_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorlang.autotune.records.formats.FORMATS", dict(FORMATS))
    cards = Format(
        "cards",
        "punch cards",
        lambda head: head.startswith(b"O O"),
        lambda path: Log(path, (hand_record(),), 0, 1, "dog"),
    )
    register_format(cards)
    (tmp_path / "deck").write_text("O OO O")
    assert read_any(tmp_path / "deck").records == (hand_record(),)
    assert read_any(tmp_path / "deck", "cards").skipped.endswith("skipped 1 line (dog)")
    with pytest.raises(RecordError, match="there is a format 'cards' already: punch cards"):
        register_format(cards)


def test_importing_adds_what_is_missing_once(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log", hand_record())
    new = [hand_record(), hand_record(seed=5), hand_record((8, 8, 8)), hand_record((8, 8, 8))]
    assert append_missing(log, new) == (log, 2, 2)
    assert append_missing(log, new) == (log, 0, 4)
    assert read_log(log).records == (hand_record(), hand_record(seed=5), hand_record((8, 8, 8)))
    assert append_missing(tmp_path / "new", new[:1]) == (tmp_path / "new", 1, 0)


def test_two_logs_are_compared_by_their_best() -> None:
    def loaded(*records: TuningRecord) -> Loaded:
        return Loaded(Log(Path("log"), records))

    first = loaded(hand_record(seconds=4e-3), hand_record(seconds=2e-3), hand_record((8, 8, 8)))
    second = loaded(hand_record(seconds=1e-3), hand_record((9, 9, 9)), hand_record((8, 8, 8), threads=2))
    found = compare_logs(first, second)
    assert [(str(d.either.workload), d.either.threads, d.ratio) for d in found] == [
        ("matmul(24, 40, 16, float32)", 1, 2.0),
        ("matmul(8, 8, 8, float32)", 1, None),
        ("matmul(9, 9, 9, float32)", 1, None),
        ("matmul(8, 8, 8, float32)", 2, None),
    ]
    data = [d.to_json() for d in found]
    assert (data[0]["first"], data[0]["second"], data[1]["second"], data[2]["first"]) == (2e-3, 1e-3, None, None)
    assert json.loads(json.dumps(data)) == data


HOSTILE = "x = __import__('os').abort(); y"


@pytest.mark.parametrize(
    "trace",
    [
        [{"step": "sample_choice", "name": HOSTILE, "candidates": [1], "decision": 1}],
        [{"step": "parallel", "stage": f"C'); {HOSTILE}", "axis": "i"}],
        [*hand_record().trace, {"step": "parallel", "stage": "C", "axis": "k"}],
    ],
)
def test_what_is_not_proven_is_exported_as_comments(trace: Any) -> None:
    record = hand_record(trace=trace)
    with pytest.raises(RecordError, match="no schedule of these records can be proven here; the first is refused: "):
        to_python([record])
    _, only, *rest = to_python([hand_record(), record]).split("\n\n\n")
    assert only.startswith("def matmul_24_40_16_float32(s):\n    ") and not rest[1:]
    for text in (*rest, unproven_text(record)):
        assert text and all(line.startswith("#") for line in text.split("\n") if line)


def test_no_cell_of_a_table_is_a_formula() -> None:
    (row,) = csv.DictReader(io.StringIO(to_csv([hand_record(sketch="=cmd|' /C calc'!A0")])))
    assert row["sketch"].startswith("'=")
