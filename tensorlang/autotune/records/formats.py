"""Files of records that `tensorlang log import` reads: a table of formats, to which importers add their own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tensorlang.autotune.records.log import Log, LogPath, parse_line, read_log
from tensorlang.autotune.records.record import TuningRecord
from tensorlang.autotune.records.regular import nests_deeply, read_regular
from tensorlang.dataclass import dataclass
from tensorlang.errors import RecordError, shown

_LOOKED_AT = 1 << 20  # bytes of a file by which its format is told


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of file that holds records.

    `is_it` tells it by the first megabyte of a file; `read` returns what the file holds as records of today's schema,
    and counts as `foreign` what it had to leave out, with the first reason. It raises RecordError when nothing is left.
    """

    name: str
    what: str
    is_it: Callable[[bytes], bool]
    read: Callable[[Path], Log]


def _is_log(head: bytes) -> bool:
    """Whether a line is a record of ours, of any schema."""
    found = (parse_line(line) for line in head.split(b"\n") if line.strip())
    return any("schema" in data for data in found if data is not None)


def _is_document(head: bytes) -> bool:
    return head.lstrip().startswith(b"[") and b'"schema"' in head


def _read_document(path: Path) -> Log:
    """Read one JSON array of records, as `tensorlang log export --format json` writes it."""
    try:
        entries = json.loads(read_regular(path))
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path} is no JSON document: {error}") from None
    records: list[TuningRecord] = []
    reasons: list[str] = []
    for entry in entries if isinstance(entries, list) else [entries]:
        try:
            if nests_deeply(entry):
                raise RecordError("malformed tuning record: lists in lists, and so on")
            records.append(TuningRecord.from_json(entry))
        except RecordError as error:
            reasons.append(str(error))
    if reasons and not records:
        raise RecordError(f"{path} holds no tuning records: {reasons[0]}")
    return Log(path, tuple(records), 0, len(reasons), reasons[0] if reasons else "")


FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        Format("tensorlang", "logs of tensorlang, of this schema or older ones", _is_log, read_log),
        Format("json", "one JSON array of records, as exported", _is_document, _read_document),
    )
}


def register_format(format: Format) -> None:
    """Add a format to those that can be imported; RecordError when its name is taken."""
    if format.name in FORMATS:
        raise RecordError(f"there is a format {format.name!r} already: {FORMATS[format.name].what}")
    FORMATS[format.name] = format


def find_format(path: LogPath, name: str | None = None) -> Format:
    """The format of a file, told by the file itself, or named; RecordError when there is none such."""
    path = Path(path)
    if name is not None and name not in FORMATS:
        raise RecordError(f"unknown format {shown(name)}; there are {', '.join(FORMATS)}")
    try:
        head = read_regular(path, first=_LOOKED_AT)
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
    found = FORMATS[name] if name else next((f for f in FORMATS.values() if f.is_it(head)), None)
    if found is None:
        raise RecordError(f"cannot tell what wrote {path}; formats that can be imported: {', '.join(FORMATS)}")
    return found


def read_any(path: LogPath, name: str | None = None) -> Log:
    """Read records of any known format, told by the file itself, or named."""
    return find_format(path, name).read(Path(path))
