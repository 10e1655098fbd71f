"""What a call costs before and after the kernel's own work, beside NumPy's call of the same small addition."""

from __future__ import annotations

import statistics
import timeit
from collections.abc import Callable
from unittest import mock

import numpy as np

from benchmarks.figure import Figure
from tensorlang import te
from tensorlang.driver import build
from tensorlang.runtime import cpython, openmp
from tensorlang.runtime.executable import Executable
from tensorlang.schedule import create_schedule

TURNS = 41
CALLS = 2_000


def measure() -> list[Figure]:
    """Nanoseconds of one call each, medians of turns that alternate."""
    a, b, c = (np.ones(4, np.float32) for _ in range(3))
    scratch, parallel = _through_scratch(), _parallel()
    quick = _addition()
    with mock.patch.object(cpython, "layout_is_known", lambda: False):
        safe = _addition()
    turns: dict[str, Callable[[], object]] = {
        "warm call on three small arrays": lambda: quick(a, b, c),
        "np.add(a, b, out=c) on the same arrays": lambda: np.add(a, b, out=c),
        "warm call where arrays have another layout": lambda: safe(a, b, c),
        "warm call of a kernel with scratch memory": lambda: scratch(a, c),
        "warm call of a kernel with a team of two": lambda: parallel(a, c),
    }
    if not openmp.available():
        del turns["warm call of a kernel with a team of two"]
    times = _alternating(turns)
    ours, numpys = (times[name] for name in list(turns)[:2])
    return [
        *(Figure(name, nanoseconds, "ns") for name, nanoseconds in times.items()),
        Figure("warm call, in calls of np.add", ours / numpys, "", 1),
    ]


def _alternating(turns: dict[str, Callable[[], object]]) -> dict[str, float]:
    empty = timeit.Timer(lambda: None)
    timers = {name: timeit.Timer(call) for name, call in turns.items()}
    found: dict[str, list[float]] = {name: [] for name in turns}
    for timer in timers.values():
        timer.timeit(100)
    for _ in range(TURNS):
        nothing = empty.timeit(CALLS)
        for name, timer in timers.items():
            found[name].append(1e9 * (timer.timeit(CALLS) - nothing) / CALLS)
    return {name: statistics.median(values) for name, values in found.items()}


def _addition() -> Executable:
    x, y = te.placeholder((4,), name="X"), te.placeholder((4,), name="Y")
    z = te.compute((4,), lambda i: x[i] + y[i], name="Z")
    return build(create_schedule(z.op), [x, y, z])


def _through_scratch() -> Executable:
    x = te.placeholder((4,), name="X")
    y = te.compute((4,), lambda i: x[i] * 2, name="Y")
    z = te.compute((4,), lambda i: y[3 - i], name="Z")
    function = build(create_schedule(z.op), [x, z])
    assert function.memory().total > 0
    return function


def _parallel() -> Executable:
    x = te.placeholder((4,), name="X")
    z = te.compute((4,), lambda i: x[i] * 2, name="Z")
    s = create_schedule(z.op)
    s[z].parallel(z.op.axis[0])
    return build(s, [x, z], target="llvm -num-cores=2")
