"""Emptying the caches, for programs whose data is cold in use."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np
import numpy.typing as npt

SWEEPS = 2  # times the size of the last cache


@lru_cache(maxsize=1)
def cache_flusher(caches: tuple[int, ...], threads: int) -> Callable[[], None]:
    """A function that drives what a kernel left out of the caches of every core that it ran on.

    One thread a core rewrites an array of its own; together they are twice as large as the last cache, each at least
    twice as large as the caches of its core.
    """
    own = max(caches[:-1], default=0)
    size = max(SWEEPS * max(caches, default=0) // threads, SWEEPS * own)
    arrays = [np.zeros(max(1, size // 4), np.float32) for _ in range(threads)]
    cpus = _cpus(threads)
    pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def flush() -> None:
        if pool is None:
            np.add(arrays[0], 1, out=arrays[0])
        else:
            list(pool.map(_sweep, arrays, cpus))

    return flush


def _cpus(threads: int) -> list[int | None]:
    affinity = getattr(os, "sched_getaffinity", None)
    known: list[int | None] = [] if affinity is None else sorted(affinity(0))
    return (known + [None] * threads)[:threads]


def _sweep(array: npt.NDArray[np.float32], cpu: int | None) -> None:
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})  # of this thread alone
    np.add(array, 1, out=array)
