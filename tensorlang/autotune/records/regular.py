"""Files of logs and models: they may lie in folders of others, so they are opened only where they are files, and end.

A FIFO or a device would be waited for, or read for ever; what is refused here is an OSError, like other bad files.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MOST_READ = 8 << 30
"""Bytes of a file that is read at once."""
MOST_INDEXED = 256 << 30
"""Bytes of a log that is read in parts."""
MOST_LINE = 16 << 20
"""Bytes of a record."""
MOST_NESTED = 64
"""Lists and objects of a record, one in the other."""

_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISFIFO, "it is a FIFO"),
    (stat.S_ISCHR, "it is a device"),
    (stat.S_ISBLK, "it is a device"),
    (stat.S_ISSOCK, "it is a socket"),
)
_TICK = 0.005  # seconds between two tries to get a lock


def open_regular(path: str | os.PathLike[str], flags: int = os.O_RDONLY) -> int:
    """A descriptor of a regular file, or of a new one (O_CREAT); OSError for anything else, which is not opened."""
    try:
        _require_regular(os.stat(path))  # noqa: PTH116
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    try:
        _require_regular(os.fstat(descriptor))  # it may have become another meanwhile
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def is_regular_or_absent(path: Path) -> bool:
    """Whether a name is that of a regular file itself (no link to one), or free."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return True


def _require_regular(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        what = next((word for is_it, word in _KINDS if is_it(status.st_mode)), "it is something else")
        raise OSError(errno.EINVAL, f"{what}, no regular file")


def replace_regular(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file that appears whole or not at all, and keeps its mode; where a link leads to, if the name is one.

    OSError where something else than a file has the name, and where it cannot be written.
    """
    path, mode = Path(os.path.realpath(path)), 0o644
    with contextlib.suppress(FileNotFoundError):
        status = path.stat()
        _require_regular(status)
        mode = stat.S_IMODE(status.st_mode)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name[:40]}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_regular(path: str | os.PathLike[str], most: int = MOST_READ, first: int | None = None) -> bytes:
    """The bytes of a file as long as it is now, or the `first` of them; OSError for one of more than `most` bytes."""
    with os.fdopen(open_regular(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if first is None and size > most:
            raise OSError(errno.EFBIG, f"it has {size:,} bytes, and at most {most:,} are read")
        return file.read(size if first is None else min(size, first))


def locked(lock: Callable[[], object], seconds: float) -> bool | None:
    """Whether a lock was got within some seconds; None on a file system that has no locks."""
    end = time.monotonic() + seconds
    while True:
        try:
            lock()
        except (BlockingIOError, PermissionError):
            if time.monotonic() > end:
                return False
            time.sleep(_TICK)
        except OSError:
            return None
        else:
            return True


def share(descriptor: int, seconds: float) -> bool | None:
    """Share a file with others that append to it; False while somebody replaces it."""
    return locked(lambda: fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB), seconds)


def nests_deeply(data: Any) -> bool:
    """Whether JSON data has more lists and objects in each other than any record."""
    waiting = [(data, 1)]
    while waiting:
        value, depth = waiting.pop()
        if isinstance(value, dict | list):
            if depth > MOST_NESTED:
                return True
            inside = value.values() if isinstance(value, dict) else value
            waiting += [(part, depth + 1) for part in inside if isinstance(part, dict | list)]
    return False
