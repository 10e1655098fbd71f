"""The OpenMP runtime that parallel kernels run on: one already in the process, one in a wheel, or the system's."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from itertools import product
from pathlib import Path
from threading import Lock
from typing import Any

from tensorlang.runtime import threads

SYMBOLS = ("GOMP_parallel", "omp_get_max_threads", "omp_get_num_threads", "omp_get_thread_num")
_FOLDERS = ("xgboost_cpu.libs", "xgboost.libs", "scikit_learn.libs", "torch/lib", "torch.libs")
"""Where wheels have it, beside their packages."""
_SPINS = "10000"
"""A quarter of a millisecond, more or less: as long as a thread that waits keeps its CPU before it sleeps."""
_opening = Lock()


def addresses(team: int) -> dict[str, int]:
    """Addresses of the OpenMP functions, by name, for code that wants `team` threads; opens the library.

    Without a library every loop runs serially, and never calls them.
    """
    library = _library()
    with _opening:
        threads.allow_team(team)
    found = {}
    for symbol in SYMBOLS:
        function = getattr(library, symbol) if library is not None else _never()
        found[symbol] = ctypes.cast(function, ctypes.c_void_p).value or 0
    return found


def available() -> bool:
    """Whether parallel loops really run in parallel."""
    return _library() is not None


def _library() -> ctypes.CDLL | None:
    with _opening:
        return _opened()


@cache
def _opened() -> ctypes.CDLL | None:
    path, loaded = _find()
    # libgomp reads its environment once, while it is loaded. By default threads that wait spin for milliseconds, to
    # the harm of all others; those that sleep at once are woken anew by each of many short calls.
    quiet = loaded or "GOMP_SPINCOUNT" in os.environ or "OMP_WAIT_POLICY" in os.environ
    if not quiet:
        os.environ["GOMP_SPINCOUNT"] = _SPINS
    try:
        library = ctypes.CDLL(path)
    except OSError:
        return None
    finally:
        if not quiet:
            del os.environ["GOMP_SPINCOUNT"]
    if not all(hasattr(library, symbol) for symbol in SYMBOLS):
        return None
    threads.set_limit(threads.MOST_THREADS)
    # The threads of a team do not survive a fork: a region in the child would wait for them for ever.
    os.register_at_fork(after_in_child=_run_alone)
    return library


@cache
def _never() -> Any:
    """Stands for the symbols of a missing library."""
    return ctypes.CFUNCTYPE(None)(lambda: None)


def _run_alone() -> None:
    threads.set_limit(1)


def _find() -> tuple[str, bool]:
    """Path of a libgomp, and whether the process has it already."""
    maps = Path("/proc/self/maps")
    if maps.exists():
        for line in maps.read_text().splitlines():
            path = line.split(" ")[-1]
            if "libgomp" in path and Path(path).name.startswith("libgomp"):
                return path, True
    for folder, root in product(_FOLDERS, sys.path):
        for file in sorted(Path(root, folder).glob("libgomp*.so*")):
            return str(file.resolve()), False
    return "libgomp.so.1", False
