"""Compiled objects, and what was measured, kept on disk under keys that name everything that can change them.

An entry is a SHA-256 over its key and the object, followed by the object. One that is torn or altered, that was made
for another key, or that cannot be used, is made and written again. Entries appear whole (written elsewhere, then
renamed), so processes can share a folder. Objects are run: a folder that another user can write is not touched, nor is
an entry (CacheRefused says so, once), and everything is made as without a cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

from tensorlang import config
from tensorlang.errors import CacheRefused
from tensorlang.location import caller
from tensorlang.runtime.ownership import Mapped, Untrusted, map_own, own_folder, read_own
from tensorlang.version import VERSION

T = TypeVar("T")
_DIGEST = hashlib.sha256().digest_size
LARGE_BYTES = 4 << 30
"""What large files of one ending may take together."""
_STALE = 3600.0  # seconds; no entry is written for so long
_told: set[str] = set()


def cached(parts: tuple[str, ...], make: Callable[[], bytes], use: Callable[[bytes], T]) -> T:
    """Return what `use` makes of the object of a key; the object is made and kept when it is not there.

    `parts` is the key: text that together determines the object. `use` raises when it cannot use an object: one that
    was found is made again then, and what it raises for one that was just made is raised. TENSORLANG_CACHE=0 always
    makes; TENSORLANG_LOG=cache says on standard error which it was. Warns with CacheRefused.
    """
    if not config.get("cache"):
        return use(make())
    key = _key(parts)
    try:
        found = _read(key)
    except Untrusted as error:
        _refuse(error)
        return use(make())
    if found is not None:
        try:
            used = use(found)
        except Exception as error:  # whatever is wrong with it, it can be made again
            _log(f"cannot use ({error})", key)
        else:
            _log("found", key)
            return used
    _log("makes", key)
    made = make()
    _write(key, made)
    return use(made)


def find(parts: tuple[str, ...]) -> bytes | None:
    """The bytes that were kept under a key; None where there are none, and without a cache. Warns with CacheRefused."""
    if not config.get("cache"):
        return None
    try:
        return _read(_key(parts))
    except Untrusted as error:
        _refuse(error)
        return None


def keep(parts: tuple[str, ...], payload: bytes) -> None:
    """Keep bytes under a key, in place of others, where there is a cache. Warns with CacheRefused."""
    if not config.get("cache"):
        return
    try:
        _read(_key(parts))  # an entry that others can change is left alone
    except Untrusted as error:
        _refuse(error)
        return
    _write(_key(parts), payload)


def find_file(parts: tuple[str, ...], ending: str) -> Mapped | None:
    """A file that was kept under a key, mapped; None where there is none. What is in it is for its user to check."""
    if not config.get("cache"):
        return None
    try:
        return map_own(own_folder(config.get("cache_dir")) / f"{_key(parts)}.{ending}")
    except Untrusted as error:
        _refuse(error)
    except OSError:
        pass
    return None


def keep_file(parts: tuple[str, ...], ending: str, payload: Sequence[bytes | memoryview]) -> bool:
    """Keep a large file, in pieces, under a key; others may have it mapped. Whether it is there.

    All files of that ending together take LARGE_BYTES at most: those that were not used for longest go.
    """
    if not config.get("cache"):
        return False
    try:
        folder = own_folder(config.get("cache_dir"), make=True)
        file = folder / f"{_key(parts)}.{ending}"
        map_own(file)  # an entry that others can change is left alone
    except Untrusted as error:
        _refuse(error)
        return False
    except OSError:
        return False
    _clear(folder)
    _make_room(folder, ending, LARGE_BYTES - sum(map(len, payload)))
    return _put(file, payload)


def _make_room(folder: Path, ending: str, room: int) -> None:
    """Remove the files of an ending that were used last longest ago, until the others fit."""
    with contextlib.suppress(OSError):
        known = [(file, file.stat()) for file in folder.glob(f"*.{ending}")]
        for file, status in sorted(known, key=lambda entry: -entry[1].st_atime_ns):
            room -= status.st_size
            if room < 0:
                file.unlink(missing_ok=True)


def _key(parts: tuple[str, ...]) -> str:
    digest = hashlib.sha256(VERSION.encode())
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def _bound(key: str, payload: bytes) -> bytes:
    """The digest that an entry begins with."""
    return hashlib.sha256(b"tensorlang cache\n" + key.encode() + payload).digest()


def _read(key: str) -> bytes | None:
    """The object of a key; None when there is none, or for another key. Untrusted when others can change it."""
    try:
        folder = own_folder(config.get("cache_dir"))
    except OSError:
        return None
    data = read_own(folder / f"{key}.o")
    if data is None:
        return None
    digest, payload = data[:_DIGEST], data[_DIGEST:]
    return payload if _bound(key, payload) == digest else None


def _write(key: str, payload: bytes) -> None:
    """Keep an entry; a full or read-only disk only costs the next process a compilation."""
    try:
        folder = own_folder(config.get("cache_dir"), make=True)
    except Untrusted as error:
        _refuse(error)
        return
    except OSError:
        return
    _clear(folder)
    _put(folder / f"{key}.o", [_bound(key, payload), payload])


def _put(file: Path, content: Sequence[bytes | memoryview]) -> bool:
    """Write a file in pieces, whole or not at all; whether it was."""
    import tempfile  # what only reads does without it

    try:
        handle, name = tempfile.mkstemp(dir=file.parent, suffix=".tmp")
    except OSError:
        return False
    try:
        with os.fdopen(handle, "wb") as opened:
            opened.writelines(content)
        Path(name).replace(file)
    except OSError:
        Path(name).unlink(missing_ok=True)
        return False
    return True


@cache
def _clear(folder: Path) -> None:
    """Remove, once in a process, what processes that were killed left half-written."""
    for path in folder.glob("*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _STALE:
                path.unlink()


def _refuse(why: Untrusted) -> None:
    """Warn, once in a process, of a folder or an entry that is left alone."""
    text = f"the cache of compiled kernels is not used: {why}; or set TENSORLANG_CACHE_DIR to a folder of your own"
    if text not in _told:
        _told.add(text)
        where = caller()
        warnings.warn_explicit(text, CacheRefused, where.file, where.line)


def _log(what: str, key: str) -> None:
    if "cache" in config.get("log"):
        print(f"cache: {what} {key[:16]}", file=sys.stderr)
