"""Whole logs: merged, split and repaired, without losing a record."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tensorlang.autotune.records.log import LogWriter, read_log, record_line
from tensorlang.autotune.records.record import SCHEMA, TuningRecord
from tensorlang.autotune.records.rewriting import merge_logs, repair_log, split_log
from tensorlang.errors import RecordError

from .hand import write_log

DATA = Path(__file__).parent / "data"


def test_merging_drops_duplicates_and_sorts_by_time(tmp_path: Path, record: TuningRecord) -> None:
    early, late = replace(record, time="2020-01-01T00:00:00Z"), replace(record, time="2030-01-01T00:00:00Z")
    one = write_log(tmp_path / "one", late, early)
    two = write_log(tmp_path / "two", early)
    merged, duplicates = merge_logs([one, two], one)
    assert merged.records == (early, late) == read_log(one).records
    assert duplicates == 1
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_merging_needs_readable_logs_and_leaves_the_output_alone(tmp_path: Path, record: TuningRecord) -> None:
    out = write_log(tmp_path / "out", record)
    with pytest.raises(RecordError, match="no such log"):
        merge_logs([out, tmp_path / "missing"], out)
    assert read_log(out).records == (record,)


def test_merging_upgrades_old_records_and_keeps_newer_ones_as_they_are(tmp_path: Path, record: TuningRecord) -> None:
    newer = json.dumps({"schema": SCHEMA + 1, "news": [1, 2]})
    log = write_log(tmp_path / "log", record)
    log.write_text(log.read_text() + newer + "\n{torn\n")
    merged, _ = merge_logs([log, log, DATA / "schema1.jsonl"], tmp_path / "out")
    assert (len(merged.records), merged.torn, merged.foreign) == (4, 2, 2)
    lines = [line for line in (tmp_path / "out").read_text().splitlines() if line]
    assert [json.loads(line)["schema"] for line in lines] == [SCHEMA] * 4 + [SCHEMA + 1]
    assert lines[-1] == newer


def test_a_log_is_not_replaced_under_its_writer(tmp_path: Path, record: TuningRecord) -> None:
    log = write_log(tmp_path / "log", record)
    log.write_bytes(log.read_bytes() + b"{torn\n")
    with LogWriter(log) as writer:
        with pytest.raises(RecordError, match="another process is writing to"):
            merge_logs([log], log)
        with pytest.raises(RecordError, match="another process is writing to"):
            repair_log(log)
        writer.append(replace(record, seed=8))
    assert repair_log(log).kept == 2


def test_a_repair_takes_out_torn_lines_only_and_keeps_their_pieces(tmp_path: Path, record: TuningRecord) -> None:
    newer = b'{"schema": 99}'
    log = tmp_path / "log"
    line = record_line(record)
    log.write_bytes(line + b"\n" + line[:50] + b"\n" + newer + b"\n\n" + b"\x00" * 10)
    done = repair_log(log)
    assert (done.kept, done.removed, done.torn) == (2, 2, tmp_path / "log.torn")
    assert done.torn is not None
    assert done.torn.read_bytes() == line[:50] + b"\n" + b"\x00" * 10 + b"\n"
    assert [found for found in log.read_bytes().split(b"\n") if found] == [line, newer]
    content = log.read_bytes()
    assert repair_log(log) == replace(done, removed=0, torn=None)
    assert log.read_bytes() == content


def test_what_is_no_log_is_not_repaired(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("buy milk\n")
    with pytest.raises(RecordError, match="is not a tuning log"):
        repair_log(path)
    assert path.read_text() == "buy milk\n"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(RecordError, match="no such log"):
        repair_log(tmp_path / "none")


def test_splitting_and_merging_give_the_log_again(tmp_path: Path, record: TuningRecord) -> None:
    other = replace(record, workload=replace(record.workload, name="ops.py:f", args=(), key="o" * 16))
    records = [replace(r, threads=n, time=f"2026-01-01T00:00:0{n}Z") for n in (1, 2) for r in (record, other)]
    log = write_log(tmp_path / "log", *records)
    by_workload = split_log(log, tmp_path / "workloads")
    assert [path.name for path in by_workload] == ["matmul-4-5-6-float32-kkkkkkkk.jsonl", "ops.py-f-oooooooo.jsonl"]
    assert [part.records for part in by_workload.values()] == [tuple(records[0::2]), tuple(records[1::2])]
    both = split_log(log, tmp_path / "both", ("workload", "target"))
    assert len(both) == 4
    assert all("znver5-" in path.name and "-threads-" in path.name for path in both)
    assert all(read_log(path).records == part.records for path, part in both.items())
    merged, duplicates = merge_logs(list(both), tmp_path / "merged")
    assert sorted(merged.records, key=repr) == sorted(records, key=repr)
    assert duplicates == 0


@pytest.mark.parametrize("by", ["workload", "target"])
def test_names_of_parts_are_not_too_long_for_a_file(tmp_path: Path, record: TuningRecord, by: str) -> None:
    workload = replace(record.workload, args=("x" * 300,))
    strange = [replace(record, workload=workload, target={"kind": "llvm", "gpu": n, "cpu": "y" * 300}) for n in (1, 2)]
    parts = split_log(write_log(tmp_path / "log", *strange), tmp_path / "parts", [by])
    assert sum(len(part.records) for part in parts.values()) == 2
    assert len(parts) == (1 if by == "workload" else 2)


def test_splitting_replaces_nothing(tmp_path: Path, record: TuningRecord) -> None:
    log = write_log(tmp_path / "log", record)
    split_log(log, tmp_path)
    with pytest.raises(RecordError, match=r"kkkkkkkk.jsonl exists already; split into an empty folder"):
        split_log(log, tmp_path)
    with pytest.raises(RecordError, match="cannot split by colour; there are workload, target"):
        split_log(log, tmp_path / "new", ("colour",))
    with pytest.raises(RecordError, match="cannot write"):
        split_log(log, log / "folder")


def test_merging_replaces_files_alone_where_links_lead(tmp_path: Path, record: TuningRecord) -> None:
    log = write_log(tmp_path / "log", record)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(RecordError, match=r"cannot write .*fifo: it is a FIFO, no regular file"):
        merge_logs([log], tmp_path / "fifo")
    assert (tmp_path / "fifo").is_fifo()
    (tmp_path / "own").touch(0o600)
    (tmp_path / "link").symlink_to(tmp_path / "own")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    merge_logs([log], tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and read_log(tmp_path / "own").records == (record,)
    assert (tmp_path / "own").stat().st_mode & 0o777 == 0o600
    with pytest.raises(RecordError, match=r"cannot write .*loop: Too many levels"):
        merge_logs([log], tmp_path / "loop")


@pytest.mark.parametrize("size", [250, 300])
def test_long_names_are_written_or_told_of(tmp_path: Path, record: TuningRecord, size: int) -> None:
    log, name = write_log(tmp_path / "log", record), "x" * size
    if size <= 255:
        assert len(merge_logs([log], tmp_path / name)[0].records) == len(split_log(log, tmp_path / name[1:])) == 1
        return
    for write in (merge_logs, lambda logs, path: split_log(logs[0], path)):
        with pytest.raises(RecordError, match=r"cannot write .*: File name too long"):
            write([log], tmp_path / name)
