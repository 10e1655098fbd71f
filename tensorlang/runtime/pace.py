"""Settings of the interpreter, all of its threads, for long work in one go, such as compiling a network."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_COLLECT_EVERY = 50_000
"""New objects between two looks for garbage in circles: programs and schedules have few, and live long."""
_TURN = 1e-4
"""Seconds after which a thread lets another go on. A thread in LLVM comes back for each call, dozens a kernel."""

_lock = Lock()
_before: list[tuple[tuple[int, int, int], float]] = []
_inside = 0


@contextmanager
def steady() -> Iterator[None]:
    """Look for garbage less often inside, and change threads more often; blocks nest, in any order of threads."""
    global _inside
    with _lock:
        if not _inside:
            _before.append((gc.get_threshold(), sys.getswitchinterval()))
            if gc.get_threshold()[0]:
                gc.set_threshold(max(_COLLECT_EVERY, gc.get_threshold()[0]), *gc.get_threshold()[1:])
            sys.setswitchinterval(min(_TURN, sys.getswitchinterval()))
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                thresholds, interval = _before.pop()
                gc.set_threshold(*thresholds)
                sys.setswitchinterval(interval)
