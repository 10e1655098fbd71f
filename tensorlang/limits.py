"""What a kernel may take to make: statements, memory, and, on behalf of a record of a log, time.

A schedule can ask for more than any machine has: copies of a loop, a stride, tiles ahead. What would take too much is
refused by the step or the pass that is about to do it. Somebody's record gets less than a user's own schedule.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tensorlang import config
from tensorlang.dataclass import dataclass
from tensorlang.errors import TooComplex

LARGEST = 1 << 62
"""Numbers of a schedule stay below it: what is computed from them has to fit 64 bits."""
DEEPEST = 128
"""Loops around one statement."""
_LEAST_SCRATCH = 1 << 30
_SCRATCH_FACTOR = 16


@dataclass(frozen=True, slots=True)
class _Allowance:
    """A deadline, in processor seconds of this thread, with what it was made of; and bytes for arrays of a kernel."""

    deadline: float = math.inf
    seconds: float = math.inf
    scratch: float = math.inf


_UNBOUNDED = _Allowance()
_allowance: ContextVar[_Allowance] = ContextVar("tensorlang_allowance", default=_UNBOUNDED)


@contextmanager
def for_a_record(argument_bytes: int) -> Iterator[None]:
    """Bound what is done for one record of a log: TENSORLANG_RECORD_SECONDS of this thread's processor time.

    Arrays inside its kernel may take 1 GiB, or 16 times the arrays of the program where that is more. Blocks inside
    keep the outer bounds.
    """
    outer, seconds = _allowance.get(), float(config.get("record_seconds"))
    deadline = min(outer.deadline, time.thread_time() + seconds)
    scratch = min(outer.scratch, max(_LEAST_SCRATCH, _SCRATCH_FACTOR * argument_bytes))
    token = _allowance.set(_Allowance(deadline, min(outer.seconds, seconds), scratch))
    try:
        yield
    finally:
        _allowance.reset(token)


def check_time() -> None:
    """TooComplex when the time for a record is over; asked wherever much may be done."""
    allowance = _allowance.get()
    if allowance.deadline != math.inf and time.thread_time() > allowance.deadline:
        why = f"proving and building this record takes more than {allowance.seconds:g} s of processor time"
        raise TooComplex("", why, suggested=["raise TENSORLANG_RECORD_SECONDS"])


def check_statements(count: int, what: str) -> None:
    """TooComplex for more statements than one kernel may have."""
    most = config.get("statements")
    if count > most:
        advice = ["unroll less", "raise TENSORLANG_STATEMENTS"]
        raise TooComplex("", f"{what} makes {count:,} statements, and a kernel has at most {most:,}", suggested=advice)


def check_scratch(name: str, size: int) -> None:
    """TooComplex for an array inside a kernel of more bytes than there may be."""
    asked = config.get("scratch")
    most = min(memory() if asked is None else asked, _allowance.get().scratch)
    if size > most:
        why = f"{name} takes {size:,} bytes inside the kernel, and an array there has at most {most:,.0f}"
        raise TooComplex("", why, suggested=["compute it in smaller tiles (compute_at)", "raise TENSORLANG_SCRATCH"])


def memory() -> float:
    """The bytes of memory of this machine; no limit where it does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return math.inf
