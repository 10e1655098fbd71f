"""Scratch memory that a call takes, memory that begins with a line of the cache, and what goes back to the system."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from itertools import accumulate
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tensorlang.dataclass import dataclass

ALIGNMENT = 64
"""Bytes of a line of a cache, and of the widest vector: in an array that begins elsewhere each lies in two lines."""
HUGE_PAGE = 1 << 21
_MADV_HUGEPAGE, _MADV_POPULATE_READ, _MADV_COLLAPSE = 14, 22, 25
"""What Linux's `madvise` calls them, reading pages ahead, and making huge pages of those that are there already."""


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
    """A new array of undefined values that begins with a line of the cache, or with a huge page if it is that large."""
    (made,) = empty_together([(shape, dtype)])
    return made


def empty_together(arrays: Sequence[tuple[tuple[int, ...], npt.DTypeLike]]) -> list[npt.NDArray[Any]]:
    """New arrays of undefined values by shape and dtype, one behind the other in a block: weights of a layer, a cache.

    Each begins with a line of the cache. The system is asked for huge pages for a block of 2 MB and more: what is read
    once in a call is otherwise slowed down by its small arrays, a page of 4 KB at a time.
    """
    elements = [np.dtype(dtype) for _, dtype in arrays]
    sizes = [prod(shape) * element.itemsize for (shape, _), element in zip(arrays, elements, strict=True)]
    ends = [*accumulate(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)]
    block = _block(ends[-1] if ends else 0)
    return [
        block[start : start + size].view(element).reshape(shape)
        for (shape, _), element, size, start in zip(arrays, elements, sizes, [0, *ends], strict=False)
    ]


def read_ahead(mapped: memoryview) -> None:
    """Have the system map all pages of a file that is mapped, where it does so; other threads go on meanwhile."""
    if sys.platform == "linux":
        begin = np.frombuffer(mapped, np.uint8).ctypes.data
        ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), ctypes.c_size_t(len(mapped)), _MADV_POPULATE_READ)


def _block(size: int) -> npt.NDArray[np.uint8]:
    """Bytes that begin with a line of the cache, or a huge page."""
    unit = HUGE_PAGE if size >= HUGE_PAGE else ALIGNMENT
    whole = np.empty(-(-size // unit) * unit + unit, np.uint8)
    start = -whole.ctypes.data % unit
    if unit == HUGE_PAGE and sys.platform == "linux":
        library, begin, length = ctypes.CDLL(None), whole.ctypes.data + start, -(-size // unit) * unit
        for advice in (_MADV_HUGEPAGE, _MADV_COLLAPSE):  # memory that was used before has small pages here and there
            library.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(length), advice)
    return whole[start : start + size]


def give_back() -> None:
    """Return to the system what was freed. The GNU C library keeps pieces of up to 32 MB, as weights are, for later."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
