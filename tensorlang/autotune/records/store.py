"""Where records are when nobody names a log: the default store, a folder with a log for every machine.

Reading asks this machine's log first. The logs of other machines (in a home directory that several share) count when
it has nothing: what they hold for the same target is a good schedule, but its times were taken elsewhere.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from tensorlang import config
from tensorlang.autotune.records.index import Index
from tensorlang.autotune.records.log import Log, LogPath, read_log
from tensorlang.autotune.records.lookup import Loaded, Source
from tensorlang.errors import RecordError

DEFAULT = "default"
INDEX_FROM = 4 << 20  # bytes of a log from which an index answers sooner than reading all of it


def default_store() -> Path:
    """The log of this machine in the default store (setting TENSORLANG_STORE).

    >>> from tensorlang import autotune
    >>> autotune.default_store().suffix
    '.jsonl'
    """
    name = re.sub(r"[^\w.-]+", "-", platform.node()) or "machine"
    return config.get("store") / f"{name}.jsonl"


def log_path(log: LogPath) -> Path:
    """The log that is written: a path, or this machine's in the default store for `default` (its folder is made)."""
    return _in_a_folder(default_store()) if log == DEFAULT else Path(log)


def imported_path(tuner: str) -> Path:
    """The log of the default store for what another tuner measured: its times do not compete with this machine's."""
    return _in_a_folder(default_store().with_name(f"imported-{tuner}.jsonl"))


def _in_a_folder(path: Path) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(f"cannot make the default store {path.parent}: {error.strerror}") from error
    return path


def logs_to_read(log: LogPath | None) -> list[Path]:
    """The logs that are read, first one first: a path, or those of the default store for None or `default`."""
    if log is not None and log != DEFAULT:
        return [Path(log)]
    own = default_store()
    found = sorted(own.parent.glob("*.jsonl"), key=lambda path: (path != own, path.name))
    if not found:
        raise RecordError(f"the default store {own.parent} has no records yet; tune with log='default', or name a log")
    return found


@contextmanager
def open_source(path: LogPath) -> Iterator[Source]:
    """Look up records of a log: from memory when it is short, read again when it has changed, else from its index.

    Where no index can be kept (a folder that is read-only, a full disk) a long log is read whole.
    """
    path = Path(path)
    index: Index | None = None
    try:
        status = path.stat()
        if status.st_size >= INDEX_FROM:
            index = Index(path)
    except (OSError, RecordError):
        yield Loaded(read_log(path))
        return
    if index is None:
        yield Loaded(_read_short(path, (status.st_ino, status.st_size, status.st_mtime_ns)))
        return
    with index:
        yield index


@lru_cache(maxsize=4)
def _read_short(path: Path, version: tuple[int, int, int]) -> Log:
    """The records of a log in a version of the file."""
    return read_log(path)
