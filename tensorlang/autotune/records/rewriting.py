"""Whole logs at a time: merge, split, repair. A file appears whole or not at all, and never under a writer."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tensorlang.autotune.records.log import Log, LogPath, parse_line, read_lines, read_log, record_line
from tensorlang.autotune.records.record import TuningRecord
from tensorlang.autotune.records.regular import open_regular, replace_regular
from tensorlang.dataclass import dataclass
from tensorlang.errors import RecordError
from tensorlang.files import exists


def merge_logs(paths: Sequence[LogPath], output: LogPath) -> tuple[Log, int]:
    """Write the records of several logs, oldest first, each once, to `output` (which may be one of them).

    Returns the merged log and the number of duplicates dropped. Older schemas become today's; whole lines of an
    unknown schema are kept as they are, at the end; torn ones are left out. RecordError when another process is
    writing to `output`.

        >>> from pathlib import Path
        >>> from tempfile import mkdtemp
        >>> from tensorlang import autotune, te
        >>> task = autotune.create_task("matmul", (8, 8, 8), threads=1)
        >>> record = autotune.record_by_hand(task, te.create_schedule(task.outputs), [1e-6])
        >>> log = Path(mkdtemp()) / "matmul.jsonl"
        >>> with autotune.LogWriter(log) as writer:
        ...     writer.append(record)
        >>> merged, left_out = autotune.merge_logs([log, log], log.with_name("all.jsonl"))
        >>> len(merged.records)
        1
    """
    output = Path(output)
    with _replacing(output) as replace_with:
        logs = [read_log(path) for path in paths]
        lines = {record_line(record): record for log in logs for record in log.records}
        merged = sorted(lines.items(), key=lambda item: item[1].time)
        unknown = dict.fromkeys(line for path in paths for line in _unknown_lines(path))
        replace_with([*(line for line, _ in merged), *unknown])
    log = Log(
        output,
        tuple(record for _, record in merged),
        sum(part.torn for part in logs),
        sum(part.foreign for part in logs),
        next((part.reason for part in logs if part.reason), ""),
    )
    return log, sum(len(part.records) for part in logs) - len(merged)


def _unknown_lines(path: LogPath) -> Iterator[bytes]:
    """The whole lines of a log that are records of another schema than those known here."""
    for line in read_lines(path):
        data = parse_line(line)
        if data is not None and "schema" in data:
            try:
                TuningRecord.from_json(data)
            except RecordError:
                yield line


@dataclass(frozen=True, slots=True)
class Repair:
    """What a repair kept and took out. `torn` is the file that has the pieces; None when there were none."""

    kept: int
    removed: int
    torn: Path | None


def repair_log(path: LogPath) -> Repair:
    """Take torn lines out of a log, into `<log>.torn` beside it; all whole lines stay as they are.

    RecordError when no line is whole (it is no log then), or when another process is writing to it.
    """
    path = Path(path)
    with _replacing(path) as replace_with:
        whole: list[bytes] = []
        pieces: list[bytes] = []
        for line in read_lines(path):
            (pieces if parse_line(line) is None else whole).append(line)
        if not pieces:
            return Repair(len(whole), 0, None)
        if not whole:
            raise RecordError(f"{path} is not a tuning log: no line is a JSON object")
        torn = path.with_name(f"{path.name}.torn")
        try:
            with torn.open("ab") as file:
                file.writelines(piece + b"\n" for piece in pieces)
        except OSError as error:
            raise _unwritable(torn, error) from error
        replace_with(whole)
    return Repair(len(whole), len(pieces), torn)


_LONGEST_NAME = 80  # of a workload or a target in the name of a file


def _of_workload(record: TuningRecord) -> str:
    words = [Path(record.workload.name).name, *map(str, record.workload.args)]
    return f"{'-'.join(words)[:_LONGEST_NAME]}-{record.workload.key[:8]}"


def _of_target(record: TuningRecord) -> str:
    mark = hashlib.sha256(record.place.encode()).hexdigest()[:8]
    return f"{record.target_text[:_LONGEST_NAME]}-{record.threads}-threads-{mark}"


PARTS: dict[str, Callable[[TuningRecord], str]] = {"workload": _of_workload, "target": _of_target}


def split_log(path: LogPath, folder: LogPath, by: Sequence[str] = ("workload",)) -> dict[Path, Log]:
    """Write the records of a log to one file for every workload, target, or both, in `folder`.

    Returns the files with what each holds. RecordError for an unknown way to split, or when a file exists already:
    splitting never adds to a log nor replaces one.
    """
    unknown = [part for part in by if part not in PARTS]
    if unknown or not by:
        raise RecordError(f"cannot split by {', '.join(unknown) or 'nothing'}; there are {', '.join(PARTS)}")
    parts: dict[str, list[TuningRecord]] = {}
    for record in read_log(path).records:
        name = re.sub(r"[^\w.+-]+", "-", "--".join(PARTS[part](record) for part in by))
        parts.setdefault(f"{name}.jsonl", []).append(record)
    folder = Path(folder)
    taken = [name for name in parts if exists(folder / name)]
    if taken:
        raise RecordError(f"{folder / taken[0]} exists already; split into an empty folder, or merge the logs first")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from error
    for name, records in parts.items():
        _write_lines(folder / name, map(record_line, records))
    return {folder / name: Log(folder / name, tuple(records)) for name, records in parts.items()}


@contextmanager
def _replacing(path: Path) -> Iterator[Callable[[Iterable[bytes]], None]]:
    """Yield a function that replaces a log; RecordError while somebody appends to it, who would lose records."""
    try:
        descriptor = open_regular(path)
    except FileNotFoundError:
        yield lambda lines: _write_lines(path, lines)
        return
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RecordError(f"another process is writing to {path}; stop it first, or name another output") from None
        except OSError:  # a file system without locks
            pass
        yield lambda lines: _write_lines(path, lines)
    finally:
        os.close(descriptor)


def _write_lines(path: Path, lines: Iterable[bytes]) -> None:
    try:
        replace_regular(path, b"".join(line + b"\n" for line in lines))
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> RecordError:
    return RecordError(f"cannot write {path}: {error.strerror}")
