"""What this machine can do at most, measured with micro-kernels of our own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from time import perf_counter

import numpy as np

from tensorlang.errors import ArgumentError
from tensorlang.runtime.arrays import Array, address
from tensorlang.runtime.threads import available_cores
from tensorlang.target.detect import THIS_MACHINE, parse, physical_cores
from tensorlang.target.llvm.probes import Probes, compiled
from tensorlang.target.rates import MEMORY, Rates, Values, elements, impossible, keep, levels, recall
from tensorlang.target.sampling import best_of_spread
from tensorlang.target.spec import Target

_ALONE, _TOGETHER = 3e-4, 2e-3
"""Seconds of a sample, about: shorter than a time slice, and with several threads long beside starting them."""
_CYCLES = 4e9
_NEAR = 8192
"""Bytes that any first cache has."""
_READS = 1e11
"""Bytes a second, about, that are read from caches."""
_BEYOND = 8
"""What is read from a cache is at most so many times as large as the cache before it."""
_MEMORY_FACTOR = 3
"""Reads from memory go over an array this many times as large as the last cache, a piece at a time."""
_PIECE = 1 << 22

Work = Callable[[int], object]
"""What a thread does, by its number."""


def measure(threads: int = 1) -> Rates:
    """Measure the rates of `threads` threads together, and keep the best of all measurements of this machine.

    With several threads, those of one are measured first, as what they must not fall behind. About 0.2 s where nothing
    is doubtful, at most 3 s.
    """
    if threads < 1:
        raise ArgumentError(f"threads must be at least 1, got {threads}")
    if threads > available_cores():
        raise ArgumentError(f"this process may use {available_cores()} CPUs, and {threads} threads are to be measured")
    target = parse(THIS_MACHINE)
    alone = _best(target, 1, None)
    return alone if threads == 1 else _best(target, threads, alone.values)


def _best(target: Target, threads: int, alone: Values | None) -> Rates:
    rates = measured(target, threads, recall(target, threads), alone)
    keep(target, threads, rates.values)
    return rates


def measured(target: Target, threads: int, known: Values, alone: Values | None = None) -> Rates:
    """Measure this machine; what is `known` of it counts where it is better. `alone`: rates of one thread."""
    with _Team(threads) as team:
        samplers = dict(_samplers(target, team))

        def wrong(values: Values) -> Iterator[str]:
            return impossible(Rates(threads, values), target, alone, min(threads, physical_cores()))

        found = best_of_spread(samplers, {n: rate for n, rate in known.items() if n in samplers}, wrong)
    return Rates(threads, found.best, found.doubts)


class _Team:
    """Threads that do the same at the same time, and are timed together."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.seconds = _ALONE if size == 1 else _TOGETHER
        self._pool = ThreadPoolExecutor(size)
        self._start = threading.Barrier(size)

    def __enter__(self) -> _Team:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def rate(self, work: Work, amount: float, before: Work | None = None) -> float:
        """How much of `amount`, which each thread does, is done in a second by all: in 1e9. `before` is not timed."""

        def run(number: int) -> tuple[float, float]:
            if before is not None:
                before(number)
            if self.size > 1:
                self._start.wait()
            start = perf_counter()
            work(number)
            return start, perf_counter()

        spans = [run(0)] if self.size == 1 else list(self._pool.map(run, range(self.size)))
        return amount * self.size / (max(end for _, end in spans) - min(start for start, _ in spans)) / 1e9


def _samplers(target: Target, team: _Team) -> Iterator[tuple[str, Callable[[], float]]]:
    """What takes a sample of each rate; of several threads those that depend on how many there are."""
    probes = compiled(target)
    for name in probes.runs:
        if team.size == 1 or name.startswith("fma float32"):
            yield name, _unit(probes, name, team)
    caches = target.caches
    for n, level in enumerate(levels(target)[:-1]):
        most = caches[n] // 2 // (team.size if n and n == len(caches) - 1 else 1)
        yield level, _cache(probes, target, max(_NEAR, min(most, _BEYOND * caches[n - 1]) if n else most), team)
    yield MEMORY, _memory(probes, target, _MEMORY_FACTOR * caches[-1] // team.size, team)


def _unit(probes: Probes, name: str, team: _Team) -> Callable[[], float]:
    """Instructions a second, on what is in registers or in the first cache."""
    run, operations = probes.runs[name], probes.operations[name]
    arrays = [_touched(_NEAR) for _ in range(team.size)]
    size = 4 * elements(name) if name.startswith("load") else 1
    rounds = _NEAR // (operations * size) if name.startswith("load") else 1 << 10
    sweeps = max(1, int(team.seconds * _CYCLES / (operations * rounds)))
    return lambda: team.rate(lambda t: run(address(arrays[t]), rounds, sweeps), float(operations * rounds * sweeps))


def _cache(probes: Probes, target: Target, size: int, team: _Team) -> Callable[[], float]:
    """Bytes a second out of a cache that holds so many, once they are there."""
    run, step = _widest_load(probes, target)
    arrays = [_touched(size) for _ in range(team.size)]
    rounds = size // step
    sweeps = max(1, int(team.seconds * _READS / size))
    return lambda: team.rate(
        lambda t: run(address(arrays[t]), rounds, sweeps),
        float(step * rounds * sweeps),
        before=lambda t: run(address(arrays[t]), rounds, 1),
    )


def _memory(probes: Probes, target: Target, size: int, team: _Team) -> Callable[[], float]:
    """Bytes a second of the pieces of a large array in turn: what is read again was pushed out of the caches."""
    run, step = _widest_load(probes, target)
    arrays = [_touched(max(size, _PIECE)) for _ in range(team.size)]
    pieces, turn, rounds = max(1, size // _PIECE), count(), _PIECE // step

    def sample() -> float:
        offset = next(turn) % pieces * _PIECE
        return team.rate(lambda t: run(address(arrays[t]) + offset, rounds, 1), float(step * rounds))

    return sample


def _widest_load(probes: Probes, target: Target) -> tuple[Callable[[int, int, int], None], int]:
    """What reads in the widest vectors, and the bytes of a round."""
    name = f"load float32x{target.lanes(32)}"
    return probes.runs[name], probes.operations[name] * target.vector_bytes


def _touched(size: int) -> Array:
    """Touched memory of `size` bytes, at a cache line."""
    block = np.ones(size + 64, np.uint8)
    start = -address(block) % 64
    return block[start : start + size]
