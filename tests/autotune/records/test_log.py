"""Logs: nothing measured is lost, nothing torn is believed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tensorlang.autotune.records.log import LogWriter, best_record, best_records, merge_logs, read_log
from tensorlang.autotune.records.record import Status, TuningRecord
from tensorlang.errors import RecordError


def _write(path: Path, *records: TuningRecord) -> Path:
    with LogWriter(path) as writer:
        for record in records:
            writer.append(record)
        writer.sync()
    return path


def test_what_was_written_is_read_in_order(tmp_path: Path, record: TuningRecord) -> None:
    records = tuple(replace(record, seed=n) for n in range(3))
    log = read_log(_write(tmp_path / "log", *records))
    assert log.records == records
    assert log.skipped == ""


def test_a_writer_appends(tmp_path: Path, record: TuningRecord) -> None:
    path = _write(tmp_path / "log", record)
    _write(path, replace(record, seed=8))
    assert [r.seed for r in read_log(path).records] == [7, 8]


def test_a_torn_line_is_counted_and_takes_no_neighbour_with_it(tmp_path: Path, record: TuningRecord) -> None:
    path = _write(tmp_path / "log", record)
    whole = path.read_bytes()
    path.write_bytes(whole + b"\n" + whole.strip()[:100])  # cut in the middle, no newline
    _write(path, replace(record, seed=8))
    log = read_log(path)
    assert [r.seed for r in log.records] == [7, 8]
    assert log.torn == 1
    assert "1 torn line" in log.skipped


def test_records_of_another_schema_are_skipped_with_the_reason(tmp_path: Path, record: TuningRecord) -> None:
    path = _write(tmp_path / "log", record)
    newer = {**record.to_json(), "schema": 99}
    path.write_text(path.read_text() + json.dumps(newer) + "\n")
    log = read_log(path)
    assert (len(log.records), log.torn, log.foreign) == (1, 0, 1)
    assert "schema 99" in log.skipped


def test_an_empty_log_has_no_records(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()
    assert read_log(path).records == ()


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"root:x:0:0\n", "no line is a JSON object"), (b"\xff\xfe\x00", "no line"), (b'{"a": 1}', "no field 'schema'")],
)
def test_what_is_no_log_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=message):
        read_log(path)


def test_missing_files_and_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"no such log: .*nothing"):
        read_log(tmp_path / "nothing")
    with pytest.raises(RecordError, match="cannot read"):
        read_log(tmp_path)
    with pytest.raises(RecordError, match="cannot write"):
        LogWriter(tmp_path / "no" / "folder")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_an_error_not_a_loss_in_silence(record: TuningRecord) -> None:
    with LogWriter("/dev/full") as writer, pytest.raises(RecordError, match="No space left"):
        writer.append(record)


_ENDLESS_WRITER = """
import itertools, json, sys
from dataclasses import replace
from tensorlang.autotune.records.log import LogWriter
from tensorlang.autotune.records.record import TuningRecord
record = TuningRecord.from_json(json.loads(sys.argv[2]))
with LogWriter(sys.argv[1]) as writer:
    for n in itertools.count():
        writer.append(replace(record, seed=n, error="e" * 3000))
"""


def test_killed_writers_lose_only_what_they_were_writing(tmp_path: Path, record: TuningRecord) -> None:
    path = tmp_path / "log"
    command = [sys.executable, "-c", _ENDLESS_WRITER, str(path), json.dumps(record.to_json())]
    writers = [subprocess.Popen(command) for _ in range(2)]
    deadline = time.monotonic() + 60
    while not path.exists() or path.stat().st_size < 2_000_000:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    for writer in writers:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    _write(path, replace(record, seed=-1))
    log = read_log(path)
    assert log.records[-1].seed == -1
    assert log.torn <= len(writers)
    assert log.foreign == 0
    # Every writer numbers its records from 0: the counts are 2 up to where the slower one was killed, then 1.
    counts = Counter(r.seed for r in log.records[:-1])
    found = [counts[n] for n in range(max(counts) + 1)]
    assert found == sorted(found, reverse=True)
    assert found[-1] >= 1


def test_merging_drops_duplicates_and_sorts_by_time(tmp_path: Path, record: TuningRecord) -> None:
    early, late = replace(record, time="2020-01-01T00:00:00Z"), replace(record, time="2030-01-01T00:00:00Z")
    one = _write(tmp_path / "one", late, early)
    two = _write(tmp_path / "two", early)
    merged, duplicates = merge_logs([one, two], one)
    assert merged.records == (early, late) == read_log(one).records
    assert duplicates == 1
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_merging_needs_readable_logs_and_leaves_the_output_alone(tmp_path: Path, record: TuningRecord) -> None:
    out = _write(tmp_path / "out", record)
    with pytest.raises(RecordError, match="no such log"):
        merge_logs([out, tmp_path / "missing"], out)
    assert read_log(out).records == (record,)


def test_the_best_is_the_fastest_that_is_ok(record: TuningRecord) -> None:
    wrong = replace(record, seconds=(1e-9,), status=Status.WRONG_ANSWER)
    fast, slow = replace(record, seconds=(1e-4,)), replace(record, seconds=(1e-2,))
    other = replace(record, workload=replace(record.workload, key="other"), seconds=(1.0,))
    assert best_record([wrong, slow, fast]) == fast
    assert best_record([wrong]) is None
    assert best_record([slow, other], lambda r: r.workload.key == "other") == other
    assert best_records([wrong, slow, other, fast]) == [fast, other]
