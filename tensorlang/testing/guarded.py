"""Arrays between guards: a kernel that reads or writes outside of them is stopped, or leaves a trace.

On Linux and macOS the memory of an array ends, or begins, at a page that nobody may touch: a process that does is
killed by a signal. What is left of its own pages, everywhere, is filled with a pattern that is looked at afterwards.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]

PAGES = 8
"""Of memory for an array."""
_PATTERN = 0xA5


class GuardedMemory:
    """A few pages between two guard pages, for one array at a time."""

    def __init__(self) -> None:
        page = mmap.PAGESIZE
        self._map = mmap.mmap(-1, (PAGES + 2) * page)
        whole = np.frombuffer(self._map, np.uint8)
        self.bytes: Array = whole[page : (PAGES + 1) * page]
        if sys.platform != "win32":
            start = whole.ctypes.data
            protect = ctypes.CDLL(None, use_errno=True).mprotect
            for guard in (start, start + (PAGES + 1) * page):
                if protect(ctypes.c_void_p(guard), ctypes.c_size_t(page), 0):
                    raise OSError(ctypes.get_errno(), "mprotect")
        self._used = slice(0, 0)

    def array(self, shape: Sequence[int], dtype: Any, at_end: bool, shift: int = 0) -> Array:
        """A C-contiguous array that touches a guard page, `shift` bytes aside; what is around it holds the pattern.

        ValueError for more bytes than there are.
        """
        element = np.dtype(dtype)
        size = int(np.prod([int(n) for n in shape], dtype=object)) * element.itemsize
        if size + shift > self.bytes.size:
            raise ValueError(f"{size} bytes, and there are {self.bytes.size}")
        start = self.bytes.size - size - shift if at_end else shift
        made: Array = np.ndarray(tuple(shape), element, self.bytes.data, start)
        self.bytes.fill(_PATTERN)
        self._used = slice(start, start + size)
        return made

    def is_intact(self) -> bool:
        """Whether all bytes beside the array still hold the pattern."""
        before, after = self.bytes[: self._used.start], self.bytes[self._used.stop :]
        return bool((before == _PATTERN).all() and (after == _PATTERN).all())
