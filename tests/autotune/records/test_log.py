"""Logs: nothing measured is lost, nothing torn is believed."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tensorlang.autotune.records import log as logs
from tensorlang.autotune.records.formats import find_format
from tensorlang.autotune.records.log import LogWriter, best_record, best_records, read_log, record_line
from tensorlang.autotune.records.record import Status, TuningRecord
from tensorlang.autotune.records.rewriting import repair_log
from tensorlang.autotune.records.store import open_source
from tensorlang.errors import RecordError

from .hand import FullDisk


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


def test_text_that_is_not_unicode_is_read_as_what_can_be_printed(tmp_path: Path, record: TuningRecord) -> None:
    workload = replace(record.workload, name="\udcff.py:f")  # a path of bytes that are not UTF-8
    strange = replace(
        record, workload=workload, target={**record.target, "cpu": "\ud800"}, error="\ud83d\ude00 \U0001f600"
    )
    (found,) = read_log(_write(tmp_path / "log", strange)).records
    assert (found.workload.name, found.target["cpu"], found.error) == ("?.py:f", "?", "\U0001f600 \U0001f600")


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


def test_a_full_disk_is_an_error_not_a_loss_in_silence(
    tmp_path: Path, record: TuningRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "os", FullDisk())
    with LogWriter(tmp_path / "log") as writer, pytest.raises(RecordError, match="No space left"):
        writer.append(record)


_SMALL_FILES = """
import json, resource, sys
from tensorlang.autotune.records.log import LogWriter
from tensorlang.autotune.records.record import TuningRecord
from tensorlang.errors import RecordError
record = TuningRecord.from_json(json.loads(sys.argv[2]))
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))
try:
    with LogWriter(sys.argv[1]) as writer:
        while True:
            writer.append(record)
except RecordError as error:
    print(error)
"""


def test_a_log_that_cannot_grow_keeps_its_whole_records(tmp_path: Path, record: TuningRecord) -> None:
    path = tmp_path / "log"
    line = len(record_line(record)) + 1
    command = [sys.executable, "-c", _SMALL_FILES, str(path), json.dumps(record.to_json()), str(3 * line + 100)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"cannot write {path}: 100 of {line} bytes fit, is the disk full? the records before" in printed
    _write(path, replace(record, seed=8))  # there is room again
    log = read_log(path)
    assert log.records == (record, record, record, replace(record, seed=8))
    assert log.torn == 1


_ENDLESS_WRITER = """
import itertools, json, os, sys
from dataclasses import replace
from tensorlang.autotune.records.log import LogWriter
from tensorlang.autotune.records.record import TuningRecord
record = TuningRecord.from_json(json.loads(sys.argv[2]))
with LogWriter(sys.argv[1]) as writer:
    for n in itertools.count():
        writer.append(replace(record, seed=n, sketch=sys.argv[3], error="e" * (n % 7000)))
        os.write(1, f"{n} ".encode())
        if n % 8 == 0:
            writer.sync()
"""


def test_killed_writers_lose_only_what_they_were_writing(tmp_path: Path, record: TuningRecord) -> None:
    """Three tuners at a time on one log, each killed and followed by another: what was told to be written is there."""
    path = tmp_path / "log"
    told: dict[str, bytes] = {}

    def start(name: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", _ENDLESS_WRITER, str(path), json.dumps(record.to_json()), name]
        return subprocess.Popen(command, stdout=(tmp_path / name).open("wb"))

    writers = {f"w{n}": start(f"w{n}") for n in range(3)}
    for n in range(3, 7):
        name, writer = next(iter(writers.items()))
        deadline = time.monotonic() + 60
        while (tmp_path / name).stat().st_size < 600:
            assert time.monotonic() < deadline and writer.poll() is None
            time.sleep(0.01)
        if n < 4:
            writers[f"w{n}"] = start(f"w{n}")
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        told[name] = (tmp_path / name).read_bytes()
        del writers[name]
    assert len(told) == 4
    _write(path, replace(record, seed=-1, sketch="last"))
    log = read_log(path)
    assert log.torn <= len(told)
    assert log.foreign == 0
    assert log.records[-1].sketch == "last"
    for name, numbers in told.items():
        kept = [r.seed for r in log.records if r.sketch == name]
        last = int(numbers.split()[-1])  # kill -9 may come between writing a record and telling of it
        assert kept in (list(range(last + 1)), list(range(last + 2)))


def test_the_best_is_the_fastest_that_is_ok(record: TuningRecord) -> None:
    wrong = replace(record, seconds=(1e-9,), status=Status.WRONG_ANSWER)
    fast, slow = replace(record, seconds=(1e-4,)), replace(record, seconds=(1e-2,))
    other = replace(record, workload=replace(record.workload, key="other"), seconds=(1.0,))
    assert best_record([wrong, slow, fast]) == fast
    assert best_record([wrong]) is None
    assert best_record([slow, other], lambda r: r.workload.key == "other") == other
    assert best_records([wrong, slow, other, fast]) == [fast, other]


def test_every_line_is_json_and_a_newline_is_written_behind_a_torn_one(tmp_path: Path, record: TuningRecord) -> None:
    path = _write(tmp_path / "log", record, record)
    assert [json.loads(line) for line in path.read_text().splitlines()] == [json.loads(record_line(record))] * 2
    with path.open("a") as file:
        file.write('{"torn')
    _write(path, record)
    assert path.read_text().splitlines()[2:] == ['{"torn', record_line(record).decode()]


_HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX, 1, 1 << 62)
print("held", flush=True)
sys.stdin.read()
"""


def test_who_cannot_append_alone_writes_a_newline_first(
    tmp_path: Path, record: TuningRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _write(tmp_path / "log", record)
    monkeypatch.setattr(logs, "_TURN", 0.0)
    holder = subprocess.Popen([sys.executable, "-c", _HOLDER, str(path)], stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    assert holder.stdout is not None and holder.stdout.readline()
    _write(path, record)
    holder.communicate(b"")
    assert path.read_bytes().count(b"\n\n") == 1
    assert read_log(path).records == (record, record)


def test_a_log_that_somebody_replaces_is_waited_for_and_then_refused(
    tmp_path: Path, record: TuningRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _write(tmp_path / "log", record)
    monkeypatch.setattr(logs, "_PATIENCE", 0.0)
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(RecordError, match=r"cannot write .*: another process is replacing it"):
            LogWriter(path)


def _opened(path: Path) -> None:
    with open_source(path):
        pass


@pytest.mark.parametrize("kind", ["FIFO", "device", "socket"])
def test_what_is_no_regular_file_is_neither_read_nor_written(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    path = Path("log")
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))
    uses: tuple[Callable[[Path], object], ...] = (read_log, LogWriter, find_format, repair_log, _opened)
    for use in uses:
        with pytest.raises(RecordError, match=f"cannot (read|write) log: it is a {kind}, no regular file"):
            use(path)
