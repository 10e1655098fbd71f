"""SHA-256 of what is large, by several threads: the digest of the digests of its pieces."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias

from tensorlang.runtime import cache
from tensorlang.runtime.ownership import state_of
from tensorlang.runtime.threads import available_cores

Bytes: TypeAlias = bytes | bytearray | memoryview
PIECE = 2 << 20
_MOST_THREADS = 8
"""More would wait for memory."""


def digest_of(parts: Iterable[memoryview]) -> str:
    """Of bytes in parts, as text; the same bytes in other parts have another one."""
    return _digest([partial(_cut, part, at) for part in parts for at in _begins(len(part))])


def digest_of_file(path: Path) -> str:
    """Of a file, as text; OSError where there is none that can be read."""
    with path.open("rb", buffering=0) as file:
        number = file.fileno()
        return _digest([partial(_read, number, at) for at in _begins(os.fstat(number).st_size)])


def known_digest(path: Path) -> str:
    """The digest of a file that has not changed since it was taken, from the cache; taken and kept otherwise. OSError.

    By its place, its size and its times, of which no program can set that of the last change of any kind. What is
    written through a map of a file in memory (tmpfs) changes no time: such a digest may be an old one.
    """
    status = path.stat()
    state = state_of(status, max(status.st_mtime_ns, status.st_ctime_ns))
    key = ("digest", str(path.absolute()), state)
    found = cache.find(key) if state else None
    if found is not None:
        return found.decode()
    if state:
        _settle(path)
    digest = digest_of_file(path)
    if state and path.stat().st_ctime_ns == status.st_ctime_ns:
        cache.keep(key, digest.encode())
    return digest


def _settle(path: Path) -> None:
    """Have a file written: to what waits for it, a map adds without another time."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        os.fsync(file.fileno())


def _begins(size: int) -> range:
    return range(0, size, PIECE)


def _cut(part: memoryview, begin: int) -> Bytes:
    return part[begin : begin + PIECE]


def _read(file: int, begin: int) -> Bytes:
    """The piece of a file that begins there."""
    found = bytearray()
    while len(found) < PIECE and (more := os.pread(file, PIECE - len(found), begin + len(found))):
        found += more
    return found


def _digest(pieces: Sequence[Callable[[], Bytes]]) -> str:
    from concurrent.futures import ThreadPoolExecutor  # what is remembered is looked up without it

    whole = sha256()
    with ThreadPoolExecutor(max(1, min(available_cores(), _MOST_THREADS, len(pieces)))) as threads:
        for part in threads.map(lambda piece: sha256(piece()).digest(), pieces):
            whole.update(part)
    return whole.hexdigest()
