"""Adding records that were measured or written elsewhere to a log."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tensorlang.autotune.records.log import LogPath, LogWriter, record_line
from tensorlang.autotune.records.record import TuningRecord
from tensorlang.autotune.records.store import log_path, open_source


def append_missing(log: LogPath, records: Iterable[TuningRecord]) -> tuple[Path, int, int]:
    """Append the records that a log does not have; return its path, how many were added, and how many it had."""
    path = log_path(log)
    groups: dict[tuple[str, str], dict[bytes, TuningRecord]] = {}
    count = 0
    for record in records:
        groups.setdefault((record.workload.key, record.place), {})[record_line(record)] = record
        count += 1
    if path.exists():
        with open_source(path) as source:
            for (key, place), group in groups.items():
                for known in source.records(key, place):
                    group.pop(record_line(known), None)
    missing = [record for group in groups.values() for record in group.values()]
    with LogWriter(path) as writer:
        for record in missing:
            writer.append(record)
    return path, len(missing), count - len(missing)
