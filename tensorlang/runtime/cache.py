"""Compiled objects kept on disk, under keys that name everything that can change them.

An entry is a SHA-256 of the object followed by the object: a torn or altered file is recognised, ignored and
written again. Entries appear whole (written elsewhere, then renamed), so processes can share a folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tensorlang import config
from tensorlang.version import VERSION

_DIGEST = hashlib.sha256().digest_size


def cached(parts: tuple[str, ...], make: Callable[[], bytes]) -> bytes:
    """Return the object of a key, made and kept when it is not there.

    `parts` is the key: text that together determines the object. TENSORLANG_CACHE=0 always makes;
    TENSORLANG_LOG=cache says on standard error which it was.
    """
    if not config.get("cache"):
        return make()
    path = config.get("cache_dir") / f"{_key(parts)}.o"
    found = _read(path)
    if "cache" in config.get("log"):
        print(f"cache: {'found' if found is not None else 'makes'} {path.stem[:16]}", file=sys.stderr)
    if found is not None:
        return found
    made = make()
    _write(path, made)
    return made


def _key(parts: tuple[str, ...]) -> str:
    digest = hashlib.sha256(VERSION.encode())
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def _read(path: Path) -> bytes | None:
    try:
        data = path.read_bytes()
    except OSError:
        return None
    digest, payload = data[:_DIGEST], data[_DIGEST:]
    return payload if hashlib.sha256(payload).digest() == digest else None


def _write(path: Path, payload: bytes) -> None:
    """Keep an entry; a full or read-only disk only costs the next process a compilation."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(payload).digest() + payload)
            Path(name).replace(path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
