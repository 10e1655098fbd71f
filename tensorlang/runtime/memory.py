"""How much scratch memory a call takes, and memory that goes back to the system."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


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


def give_back() -> None:
    """Return to the system what was freed. The GNU C library keeps pieces of up to 32 MB, as weights are, for later."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
