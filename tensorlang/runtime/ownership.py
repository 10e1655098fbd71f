"""Who can change a file. What is run is read only from where nobody else can put it, as ssh does with keys.

A path is followed from the root downwards. What was passed cannot be exchanged any more by others, so that what is
opened afterwards is what was looked at.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
import time
from pathlib import Path

from tensorlang.dataclass import dataclass

_MOST_LINKS = 40
SETTLED = 2_000_000_000
"""Nanoseconds after which a file that is written again has another time."""
_HAS_OWNERS = hasattr(os, "geteuid")
"""Whether files have owners and modes here."""


class Untrusted(Exception):
    """Another user can change a folder or a file. The message says which one, how, and what to do."""


def own_folder(folder: Path, make: bool = False) -> Path:
    """Follow a path to a folder of our own, and return it without links.

    All folders on the way belong to us or to root, and others can write none of them; but folders above it may be
    writable when they are sticky, as /tmp is. `make`: make what is missing, for us alone. Raises Untrusted, or OSError
    where there is no folder.
    """
    path = folder.absolute()
    if not _HAS_OWNERS:
        if make:
            path.mkdir(parents=True, exist_ok=True)
        return path
    at, left, links = Path(path.anchor), [*reversed(path.parts[1:])], 0
    _check_folder(at, at.lstat(), is_last=not left)
    while left:
        name = left.pop()
        place = at.parent if name == ".." else at / name
        status = _made(place) if make else place.lstat()
        if not stat.S_ISLNK(status.st_mode):
            _check_folder(place, status, is_last=not left)
            at = place
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(folder))
        _check_owner(place, status)
        target = place.readlink()
        left += reversed(target.parts[1:] if target.is_absolute() else target.parts)
        at = Path(target.anchor) if target.is_absolute() else at
    return at


def read_own(file: Path) -> bytes | None:
    """The bytes of a file in one's own folder; None when there is none. Untrusted when others can change it."""
    handle = _opened(file)
    if handle is None:
        return None
    with os.fdopen(handle, "rb") as opened:
        return opened.read()


@dataclass(frozen=True, slots=True)
class Mapped:
    """A file in memory, which is read where it is looked at; `state` changes with the file, "" where that is unsure."""

    content: memoryview
    state: str


def map_own(file: Path) -> Mapped | None:
    """The same, mapped. A file of no bytes is None, too."""
    handle = _opened(file)
    if handle is None:
        return None
    try:
        status = os.fstat(handle)
        if not status.st_size:
            return None
        with contextlib.suppress(OSError, TypeError):  # of root's we cannot say that we used it
            os.utime(handle, ns=(time.time_ns(), status.st_mtime_ns))
        return Mapped(memoryview(mmap.mmap(handle, 0, access=mmap.ACCESS_READ)), state_of(status, status.st_mtime_ns))
    finally:
        os.close(handle)


def state_of(status: os.stat_result, changed: int) -> str:
    """What changes with the content of a file, as text; "" for one that was `changed` (nanoseconds) too lately.

    It may change again without another time: clocks of files go in steps, up to 2 seconds long. Whoever sets the times
    of files by hand is not seen, if the size stays: say the time of the last change of any kind where others may do so.
    """
    if time.time_ns() - changed < SETTLED:
        return ""
    return f"{status.st_dev} {status.st_ino} {status.st_size} {status.st_mtime_ns} {changed}"


def _opened(file: Path) -> int | None:
    """A file of our own, open; None when there is none."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        handle = os.open(file, flags)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Untrusted(f"{file} is a link; remove it") from None
        return None
    try:
        status = os.fstat(handle)  # of what was opened, whatever its name stands for by now
        if not stat.S_ISREG(status.st_mode):
            raise Untrusted(f"{file} is no plain file; remove it")
        if _HAS_OWNERS:
            _check_owner(file, status)
            _check_mode(file, status)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _made(place: Path) -> os.stat_result:
    try:
        return place.lstat()
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):  # another process may be quicker
            place.mkdir(0o700)
        return place.lstat()


def _check_folder(place: Path, status: os.stat_result, is_last: bool) -> None:
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(place))
    _check_owner(place, status)
    if is_last or not status.st_mode & stat.S_ISVTX:  # in a sticky folder nobody renames what is ours
        _check_mode(place, status)


def _check_owner(place: Path, status: os.stat_result) -> None:
    if status.st_uid not in (0, os.geteuid()):
        raise Untrusted(
            f"{place} belongs to another user ({_user(status.st_uid)}, this process is {_user(os.geteuid())})"
        )


def _check_mode(place: Path, status: os.stat_result) -> None:
    others = stat.S_IWOTH if _is_private(status) else stat.S_IWOTH | stat.S_IWGRP
    if status.st_mode & others:
        raise Untrusted(f"{place} can be written by others ({stat.filemode(status.st_mode)}); chmod go-w {place}")


def _is_private(status: os.stat_result) -> bool:
    """Whether nobody but its owner is in the group of a file: many systems make a group like that for each user."""
    if not status.st_mode & stat.S_IWGRP:
        return True
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(status.st_uid), grp.getgrgid(status.st_gid)
    except KeyError:
        return False
    return user.pw_gid == group.gr_gid and user.pw_name == group.gr_name and set(group.gr_mem) <= {user.pw_name}


def _user(number: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
