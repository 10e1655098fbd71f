"""Tuning logs: append-only files of JSON lines.

Every record is written as newline, line, newline by one `write` on an O_APPEND descriptor: writers do not
mix their bytes, and a line torn by a kill or a power cut never takes its neighbour with it.
"""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from tensorlang.autotune.records.record import TuningRecord
from tensorlang.errors import RecordError


@dataclass(frozen=True, slots=True)
class Log:
    """The readable records of a log, and how many of its lines could not be read.

    `torn` counts lines that are no whole JSON object; `foreign` those that are, but no record of this schema,
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


def read_log(path: str | os.PathLike[str]) -> Log:
    """Read a log, skipping and counting what is torn. RecordError when it is no log at all."""
    path = Path(path)
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        raise RecordError(f"no such log: {path}") from None
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
    records: list[TuningRecord] = []
    torn, reasons = 0, []
    for line in filter(None, map(bytes.strip, lines)):
        try:
            records.append(TuningRecord.from_json(_parse_line(line)))
        except RecordError as error:
            reasons.append(str(error))
        except ValueError:
            torn += 1
    if not records and (torn or reasons):
        why = reasons[0] if reasons else "no line is a JSON object"
        raise RecordError(f"{path} is not a tuning log: {why}")
    return Log(path, tuple(records), torn, len(reasons), reasons[0] if reasons else "")


def _parse_line(line: bytes) -> dict[str, Any]:
    data = json.loads(line)
    if not isinstance(data, dict):
        raise ValueError("not an object")
    return data


class LogWriter:
    """Appends records to a log. One process writes; any number may share the file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open or create the log; RecordError when its folder is missing or not writable."""
        self.path = Path(path)
        try:
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        except OSError as error:
            raise RecordError(f"cannot write {self.path}: {error.strerror}") from error

    def append(self, record: TuningRecord) -> None:
        """Write one record; RecordError when the disk does not take the whole line."""
        line = b"\n" + _line(record) + b"\n"
        try:
            written = os.write(self._descriptor, line)
        except OSError as error:
            raise RecordError(f"cannot write {self.path}: {error.strerror}") from error
        if written != len(line):
            raise RecordError(f"cannot write {self.path}: {written} of {len(line)} bytes fit, is the disk full?")

    def sync(self) -> None:
        """Ask the system to put what was appended on the disk; RecordError when it cannot."""
        try:
            getattr(os, "fdatasync", os.fsync)(self._descriptor)
        except OSError as error:
            if error.errno != errno.EINVAL:  # pipes and devices have nothing to put anywhere
                raise RecordError(f"cannot write {self.path}: {error.strerror}") from error

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.sync()
        self.close()


def _line(record: TuningRecord) -> bytes:
    return json.dumps(record.to_json(), separators=(",", ":")).encode()


def merge_logs(paths: Sequence[str | os.PathLike[str]], output: str | os.PathLike[str]) -> tuple[Log, int]:
    """Write the records of several logs, oldest first, each once, to `output` (which may be one of them).

    Returns the merged log and the number of duplicates dropped. The file appears whole or not at all.
    """
    logs = [read_log(p) for p in paths]
    lines = {_line(r): r for log in logs for r in log.records}
    merged = sorted(lines.items(), key=lambda item: item[1].time)
    output = Path(output)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{output.name}.", dir=output.parent)
        with os.fdopen(handle, "wb") as file:
            file.writelines(b"\n" + line + b"\n" for line, _ in merged)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(output)
    except OSError as error:
        raise RecordError(f"cannot write {output}: {error.strerror}") from error
    log = Log(
        output,
        tuple(record for _, record in merged),
        sum(part.torn for part in logs),
        sum(part.foreign for part in logs),
        next((part.reason for part in logs if part.reason), ""),
    )
    return log, sum(len(part.records) for part in logs) - len(merged)


def best_record(
    records: Iterable[TuningRecord], accept: Callable[[TuningRecord], bool] = lambda r: True
) -> TuningRecord | None:
    """Return the fastest record that is ok and accepted, or None."""
    return min((r for r in records if r.ok and accept(r)), key=lambda r: r.median, default=None)


def best_records(records: Iterable[TuningRecord]) -> list[TuningRecord]:
    """Return the fastest ok record of every workload, target and thread count, in order of first appearance."""
    best: dict[tuple[str, str, int], TuningRecord] = {}
    for record in records:
        if record.ok:
            key = record.workload.key, json.dumps(record.target, sort_keys=True), record.threads
            if key not in best or record.median < best[key].median:
                best[key] = record
    return list(best.values())
