"""Files that users name: whether they are there, and what is said where one cannot be written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tensorlang.errors import TensorlangError


def exists(path: str | os.PathLike[str]) -> bool:
    """Whether there is something of that name, which may be too long for the system; `Path.exists` raises OSError."""
    return os.path.exists(path)  # noqa: PTH110


def is_file(path: str | os.PathLike[str]) -> bool:
    """Whether there is a file of that name, as `exists`."""
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Whether there is a folder of that name, as `exists`."""
    return os.path.isdir(path)  # noqa: PTH112


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """TensorlangError where what follows cannot write a file."""
    try:
        yield
    except OSError as error:
        raise TensorlangError(f"cannot write {path}: {error.strerror or error}") from error
