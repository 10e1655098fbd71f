"""How many threads run a kernel, and the memory words by which compiled code learns it.

A parallel loop takes at most as many threads as its kernel was built for (`default_threads`, or `-num-cores=N`), as
`threads(n)` allows the thread that calls, and as it has iterations. All calls of a process share one set of helper
threads: as many as the largest team built for has besides its caller. A call takes those that others left, and
runs alone when there are none, so callers with threads of their own never start more than these.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tensorlang import config
from tensorlang.errors import ArgumentError, shown

TEAM_SYMBOL = "tensorlang_team"
LIMIT, BUDGET, CALLER_KEY, TAKEN = 0, 8, 16, 64
"""Offsets into the words of the team: threads that any call may have, helpers that there are, the key of the calling
thread's own limit; and, alone on its cache line because every call writes it, the helpers taken."""
ARENA_SYMBOL = "tensorlang_arena_key"
"""The key under which each thread keeps its scratch memory."""
MOST_THREADS = 2**31 - 1
"""As many as OpenMP can be asked for: no limit at all."""

_LINE = 64
_memory = (ctypes.c_char * (3 * _LINE))()
_words = -(-ctypes.addressof(_memory) // _LINE) * _LINE

_c = ctypes.CDLL(None)
_c.pthread_getspecific.restype = ctypes.c_void_p
_c.pthread_getspecific.argtypes = [ctypes.c_ulong]
_c.pthread_setspecific.argtypes = [ctypes.c_ulong, ctypes.c_void_p]
_c.free.argtypes = [ctypes.c_void_p]
_c.free.restype = None


def default_threads() -> int:
    """Threads of a parallel loop: TENSORLANG_NUM_THREADS, else the usable CPUs, at most OMP_NUM_THREADS of them."""
    return config.get("num_threads") or min(available_cores(), _openmp_threads() or available_cores())


def available_cores() -> int:
    """The number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_quota(groups: Path = Path("/sys/fs/cgroup")) -> float:
    """How many CPUs the container that we are in may keep busy; infinity where nothing limits it."""
    with contextlib.suppress(OSError, ValueError):
        quota, period = (groups / "cpu.max").read_text().split()
        return int(quota) / int(period)
    with contextlib.suppress(OSError, ValueError):
        quota, period = ((groups / "cpu" / f"cpu.cfs_{word}_us").read_text() for word in ("quota", "period"))
        return int(quota) / int(period) if int(quota) > 0 else math.inf
    return math.inf


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let kernels that this thread calls inside the `with` block run on at most `count` threads.

    Blocks nest, and the innermost counts; other threads of the process are not concerned.
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ArgumentError(f"threads({shown(count)}): expected a whole number of at least 1")
    before = _c.pthread_getspecific(_caller_key)
    _limit_caller(min(count, MOST_THREADS))
    try:
        yield
    finally:
        _limit_caller(before)


def set_limit(count: int) -> None:
    """Allow every call of the process at most `count` threads."""
    _word(LIMIT).value = count


def allow_team(count: int) -> None:
    """See that there are helpers for a team of `count` threads."""
    _word(BUDGET).value = max(_word(BUDGET).value, count - 1)


def helpers_taken() -> int:
    """The helper threads that calls are using now."""
    return _word(TAKEN).value


def addresses() -> dict[str, int]:
    """Addresses of the words that compiled code reads, by symbol."""
    return {TEAM_SYMBOL: _words, ARENA_SYMBOL: ctypes.addressof(_arena_key)}


def arena() -> tuple[int, int, int]:
    """Bytes of scratch memory that the calling thread keeps, has in use, and has had in use at most."""
    block = _c.pthread_getspecific(_arena_key)
    kept, used, most = (ctypes.c_int64 * 3).from_address(block) if block else (0, 0, 0)
    return kept, used, most


def release_scratch() -> None:
    """Return the scratch memory that the calling thread keeps between calls, unless a kernel is using it."""
    block = _c.pthread_getspecific(_arena_key)
    if block and arena()[1] == 0:
        _c.pthread_setspecific(_arena_key, None)
        _c.free(block)


def _openmp_threads() -> int | None:
    """What OMP_NUM_THREADS says: its first number; other texts are OpenMP's to refuse."""
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) > 0 else None


def _word(offset: int) -> ctypes.c_int64:
    return ctypes.c_int64.from_address(_words + offset)


def _limit_caller(count: int | None) -> None:
    if _c.pthread_setspecific(_caller_key, count):
        raise MemoryError("no memory to keep the thread limit of this thread")


def _new_key(destructor: ctypes.c_void_p | None) -> ctypes.c_ulong:
    key = ctypes.c_ulong(0)  # an unsigned int on Linux, whose bytes are the lower ones
    if _c.pthread_key_create(ctypes.byref(key), destructor):
        raise MemoryError("this process has no key for thread-local memory left")
    return key


_caller_key = _new_key(None)
_arena_key = _new_key(ctypes.cast(_c.free, ctypes.c_void_p))  # a thread's memory goes when the thread ends
_word(CALLER_KEY).value = _caller_key.value
set_limit(1)  # until there is an OpenMP library
