"""Tuning logs: append-only files of JSON lines.

Every record is written as line, newline by one `write` on an O_APPEND descriptor: writers do not mix their bytes.
Behind a line that a kill or a power cut has torn, a newline is written first: it never takes its neighbour with it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from tensorlang.autotune.records.record import Json, TuningRecord
from tensorlang.autotune.records.regular import (
    MOST_LINE,
    MOST_NESTED,
    locked,
    nests_deeply,
    open_regular,
    read_regular,
    share,
)
from tensorlang.dataclass import dataclass
from tensorlang.errors import RecordError

LogPath = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Log:
    """The readable records of a log, and how many of its lines could not be read.

    `torn` counts lines that are no whole JSON object; `foreign` those that are, but no record of a known schema,
    with the first reason in `reason`.
    """

    path: Path
    records: tuple[TuningRecord, ...]
    torn: int = 0
    foreign: int = 0
    reason: str = ""

    @property
    def skipped(self) -> str:
        """What was left out, as text; empty when nothing was."""
        parts = [f"{self.torn} torn line{'s' * (self.torn > 1)}"] if self.torn else []
        parts += [f"{self.foreign} line{'s' * (self.foreign > 1)} ({self.reason})"] if self.foreign else []
        return f"{self.path}: skipped {' and '.join(parts)}" if parts else ""


def read_lines(path: LogPath) -> list[bytes]:
    """The lines of a log that are not blank; RecordError when it cannot be read."""
    try:
        content = read_regular(path)
    except FileNotFoundError:
        raise RecordError(f"no such log: {path}") from None
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
    return [line for line in map(bytes.strip, content.split(b"\n")) if line]


def parse_line(line: bytes) -> Json | None:
    """The JSON object of a line; None when the line is torn.

    Halves of characters, which nothing prints, are `?`; numbers that JSON does not have (NaN, Infinity) are null. What
    is longer or deeper than any record is no record.
    """
    if len(line) > MOST_LINE:
        return None
    try:
        data: Any = json.loads(line, parse_constant=lambda name: None)
        if _looks_deep(line) and nests_deeply(data):
            return None
        if b"\\ud" in line.lower():  # the escape of such a half, or of a whole character
            data = json.loads(json.dumps(data, ensure_ascii=False).encode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_FEW = 8


def _looks_deep(line: bytes) -> bool:
    """Whether the brackets of a line may be in many others; those in texts may make it look so."""
    brackets = line.translate(None, _NO_BRACKETS)
    for _ in range(_FEW):
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    return len(brackets) > MOST_NESTED


def read_log(path: LogPath) -> Log:
    """Read a log, skipping and counting what is torn. RecordError when it is no log at all.

    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> from tensorlang import autotune, te
    >>> task = autotune.create_task("matmul", (8, 8, 8), threads=1)
    >>> record = autotune.record_by_hand(task, te.create_schedule(task.outputs), [1e-6])
    >>> log = Path(mkdtemp()) / "matmul.jsonl"
    >>> with autotune.LogWriter(log) as writer:
    ...     writer.append(record)
    >>> len(autotune.read_log(log).records)
    1
    """
    path = Path(path)
    records: list[TuningRecord] = []
    torn, reasons = 0, []
    for line in read_lines(path):
        data = parse_line(line)
        if data is None:
            torn += 1
            continue
        try:
            records.append(TuningRecord.from_json(data))
        except RecordError as error:
            reasons.append(str(error))
    if not records and (torn or reasons):
        raise not_a_log(path, reasons[0] if reasons else "")
    return Log(path, tuple(records), torn, len(reasons), reasons[0] if reasons else "")


def not_a_log(path: Path, reason: str) -> RecordError:
    """The error of a file without a record. `reason`: why the first of its JSON objects is none, if it has any."""
    return RecordError(f"{path} is not a tuning log: {reason or 'no line is a JSON object'}")


def record_line(record: TuningRecord) -> bytes:
    """A record as one line, without a newline."""
    return json.dumps(record.to_json(), separators=(",", ":")).encode()


class LogWriter:
    """Appends records to a log. One process writes; any number may share the file.

    While it is open nobody can replace the file (records.rewriting asks for its lock).
    """

    def __init__(self, path: LogPath) -> None:
        """Open or create the log; RecordError when its folder is missing or not writable, or it is no regular file."""
        self.path = Path(path)
        try:
            self._descriptor, self._readable = _open_shared(self.path)
        except OSError as error:
            raise RecordError(f"cannot write {self.path}: {error.strerror}") from error

    def append(self, record: TuningRecord) -> None:
        """Write one record; RecordError when the disk does not take the whole line."""
        line = record_line(record) + b"\n"
        try:
            with _appending(self._descriptor) as alone:
                if not (alone and self._ends_whole()):
                    line = b"\n" + line
                written = os.write(self._descriptor, line)
        except OSError as error:
            raise RecordError(f"cannot write {self.path}: {error.strerror}; {_KEPT}") from error
        if written != len(line):
            why = f"{written} of {len(line)} bytes fit, is the disk full?"
            raise RecordError(f"cannot write {self.path}: {why} {_KEPT}")

    def _ends_whole(self) -> bool:
        """Whether the last line is whole; not known of a log that can only be written."""
        size = os.fstat(self._descriptor).st_size
        return not size or (self._readable and os.pread(self._descriptor, 1, size - 1) == b"\n")

    def sync(self) -> None:
        """Ask the system to put what was appended on the disk; RecordError when it cannot."""
        try:
            getattr(os, "fdatasync", os.fsync)(self._descriptor)
        except OSError as error:
            if error.errno != errno.EINVAL:  # file systems that have nothing to put anywhere
                raise RecordError(f"cannot write {self.path}: {error.strerror}; {_KEPT}") from error

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.sync()
        finally:
            self.close()


_KEPT = "the records before this one are whole"


_PATIENCE = 30.0  # seconds to wait for somebody who replaces a log
_TURN = 0.05  # seconds to wait for other writers: a line takes microseconds
_ONE_BYTE, _BEHIND_ALL = 1, 1 << 62  # what a writer locks: never the bytes of a log
_here = threading.Lock()  # the locks below keep processes apart, not threads


@contextmanager
def _appending(descriptor: int) -> Iterator[bool]:
    """Append alone, if the lock can be had: False where somebody else may append meanwhile."""

    def lock() -> None:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, _ONE_BYTE, _BEHIND_ALL)

    with _here:
        alone = locked(lock, _TURN) is True
        try:
            yield alone
        finally:
            if alone:
                fcntl.lockf(descriptor, fcntl.LOCK_UN, _ONE_BYTE, _BEHIND_ALL)


def _open_shared(path: Path) -> tuple[int, bool]:
    """Open a log for appending, together with other writers, and not while it is being replaced; can it be read?"""
    while True:
        descriptor, readable = _open_to_append(path)
        if share(descriptor, _PATIENCE) is False:
            os.close(descriptor)
            raise OSError(errno.EBUSY, "another process is replacing it")
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor, readable
        os.close(descriptor)  # replaced before the lock was ours: append to the new file


def _open_to_append(path: Path) -> tuple[int, bool]:
    try:
        return open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT), True
    except PermissionError:
        return open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), False


def best_record(
    records: Iterable[TuningRecord], accept: Callable[[TuningRecord], bool] = lambda r: True
) -> TuningRecord | None:
    """Return the fastest record that is ok and accepted, or None.

    >>> from tensorlang import autotune, te
    >>> task = autotune.create_task("matmul", (8, 8, 8), threads=1)
    >>> record = autotune.record_by_hand(task, te.create_schedule(task.outputs), [1e-6])
    >>> autotune.best_record([record]).median
    1e-06
    """
    return min((r for r in records if r.ok and accept(r)), key=lambda r: r.median, default=None)


def best_records(records: Iterable[TuningRecord]) -> list[TuningRecord]:
    """Return the fastest ok record of every workload, target and thread count, in order of first appearance.

    >>> from tensorlang import autotune, te
    >>> task = autotune.create_task("matmul", (8, 8, 8), threads=1)
    >>> record = autotune.record_by_hand(task, te.create_schedule(task.outputs), [1e-6])
    >>> [best.threads for best in autotune.best_records([record, record])]
    [1]
    """
    best: dict[tuple[str, str], TuningRecord] = {}
    for record in records:
        if record.ok:
            key = record.workload.key, record.place
            if key not in best or record.median < best[key].median:
                best[key] = record
    return list(best.values())
