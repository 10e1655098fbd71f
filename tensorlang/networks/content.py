"""The content of a model in a file, as text: the digest of the file, and of those beside it that hold its weights.

Which these are the model says, and reading it takes the onnx package: they are remembered by the digest of the model.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from tensorlang.files import is_file
from tensorlang.runtime import cache
from tensorlang.runtime.digest import known_digest


def content_of(path: Path, names: Sequence[str] | None = None) -> str:
    """The content, with files of these names, or those that are remembered.

    What cannot be read has none, and is refused by whoever reads it.
    """
    try:
        own = _digest(path)
        files = json.loads(cache.find(_key(own)) or "[]") if names is None else names
        return " ".join([own, *(_digest(path.parent / name) for name in files)])
    except OSError:
        return ""


def remember_files(path: Path, names: Sequence[str]) -> bool:
    """Remember which files hold weights of a model; False where that is not kept, or names lead out of its folder."""
    parts = [PurePosixPath(name) for name in names]
    if any(part.is_absolute() or ".." in part.parts for part in parts):
        return False
    key, payload = _key(known_digest(path)), json.dumps(sorted(names)).encode()
    cache.keep(key, payload)
    return cache.find(key) == payload


def _key(digest: str) -> tuple[str, ...]:
    return ("files of a model", digest)


def _digest(path: Path) -> str:
    if not is_file(path):
        raise FileNotFoundError(path)
    return known_digest(path)
