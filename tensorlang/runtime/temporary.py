"""Temporary folders that do not stay for ever when their owner is killed.

An owner holds a lock on a file in its folder, which the system drops with the process, however it ends. Whoever makes a
folder next clears those of the same user that nobody holds. Process numbers would say less: they are used again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # no such locks: folders of killed processes stay
    fcntl = None  # type: ignore[assignment]

PREFIX = "tensorlang-"
_LOCK = "owner.lock"


class TemporaryFolder(tempfile.TemporaryDirectory[str]):
    """A folder for this user alone, removed by `cleanup`, with the object, or by the next one after a kill.

    `purpose` stands in its name. A context manager, which gives the folder's path.
    """

    def __init__(self, purpose: str) -> None:
        clear_abandoned(Path(tempfile.gettempdir()))
        while True:
            super().__init__(prefix=f"{PREFIX}{purpose}-", ignore_cleanup_errors=True)
            path = Path(self.name, _LOCK)
            self._lock = path.open("x+b")  # open until the end
            if _hold(self._lock.fileno(), path) is not False:
                return
            self.cleanup()  # who clears took it for an abandoned one before it was held

    def cleanup(self) -> None:
        """Remove the folder, and let go of it."""
        super().cleanup()
        self._lock.close()


def clear_abandoned(place: Path) -> None:
    """Remove the temporary folders of this user whose owners are gone."""
    for folder in _folders(place):
        with contextlib.suppress(OSError):
            handle = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
            try:
                if _hold(handle, folder / _LOCK):
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(handle)


def _folders(place: Path) -> Iterator[Path]:
    """Folders of this user that look like ours. Without a lock they belong to something else, or are being made."""
    if fcntl is None:
        return
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX):
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
                        yield place / entry.name


def _hold(handle: int, path: Path) -> bool | None:
    """Lock an open file: False when another process has it or it was removed, None where there are no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    with contextlib.suppress(OSError):
        return os.path.samestat(os.fstat(handle), path.stat())
    return False
