"""Scratch memory that a call takes, memory that begins with a line of the cache, and what goes back to the system."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tensorlang.dataclass import dataclass

ALIGNMENT = 64
"""Bytes of a line of a cache, and of the widest vector: in an array that begins elsewhere each lies in two lines."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of scratch memory that a call has in use at most, its arguments and its stack aside.

    `shared`: for the whole call. `per_thread`: for each of the `threads` of its largest team, 0 and 1 without any.
    """

    shared: int
    per_thread: int = 0
    threads: int = 1

    @property
    def total(self) -> int:
        """The bytes of all threads together."""
        return self.shared + self.per_thread * self.threads

    def __str__(self) -> str:
        teams = f" + {self.per_thread} in each of {self.threads} threads" if self.per_thread else ""
        return f"{self.total} bytes: {self.shared} shared{teams}"


MemoryOf: TypeAlias = Callable[[dict[str, int]], Memory]
"""What a call takes, by the values of its sizes."""


def aligned_empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """A new array of undefined values that begins with a line of the cache."""
    element = np.dtype(dtype)
    size = prod(shape) * element.itemsize
    block = np.empty(size + ALIGNMENT, np.uint8)
    start = -block.ctypes.data % ALIGNMENT
    return block[start : start + size].view(element).reshape(shape)


def give_back() -> None:
    """Return to the system what was freed. The GNU C library keeps pieces of up to 32 MB, as weights are, for later."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
