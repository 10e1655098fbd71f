"""`f.profile(*arrays)`: where the time of a kernel goes, and what holds each part of it up."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tensorlang.dataclass import dataclass
from tensorlang.errors import ArgumentError, TargetError, shown
from tensorlang.files import writing
from tensorlang.ir.expr import Buffer, Var
from tensorlang.markup import Markup, element, page, table
from tensorlang.profiling.advice import Advice, Advised, advice_of
from tensorlang.profiling.counters import Counters, counted
from tensorlang.profiling.machine import Limit, Machine
from tensorlang.profiling.regions import FIRST, LAST, TOTAL, Instrumented, Region, instrumented
from tensorlang.profiling.roofline import Point, roofline_svg
from tensorlang.profiling.trace import document, span
from tensorlang.profiling.work import Work, work_of
from tensorlang.runtime.executable import Executable
from tensorlang.runtime.threads import available_cores
from tensorlang.target.backend import backend
from tensorlang.target.rates import MEMORY
from tensorlang.words import format_seconds, format_threads

_CLOCK_SECONDS = 15e-9
"""What two looks at the clock cost, about."""
_OVERHEAD = 0.03
"""The share of the time that clocks may take: regions that begin too often have none of their own."""
_FEWEST, _SPAN = 16, 0.05
"""Entries of regions that are timed in any kernel, and the seconds of runs by which the counter is compared."""
_AT_ONCE = 6e-7
"""Seconds of a run of a part: of shorter ones more than a twentieth is done while what lies beside them is."""
_FAR = 0.35
"""Of its limit: what is farther away waits for something else, for results or for single elements."""
_REST = 0.005
"""The share of the time from where on what is between the parts, and outside of the kernel, has a row."""
_COLUMNS = ("time", "share", "GFLOP/s", "GB/s", "of limit", "bound by")
Ticks: TypeAlias = npt.NDArray[np.int64]
Times: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LoopTime:
    """The time of a part of a kernel: some neighbouring loop nests that make a stage, or several.

    `loops` are around it; it begins `entries` times. `seconds` are of the whole kernel's time, of parts that threads
    share their part of it. `operations`, and `bytes` of different elements, of all its runs. `limit`: the time that the
    machine needs at least and for what; `binds`: that, or "latency" where the time is far above. None for parts with
    parts of their own.
    """

    stages: tuple[str, ...]
    loops: tuple[str, ...]
    depth: int
    entries: int
    seconds: float
    operations: float
    bytes: float
    limit: Limit | None
    binds: str

    @property
    def name(self) -> str:
        """Its stages, and the loops around them."""
        return f"{' + '.join(self.stages) or 'nothing'}{' in ' + ', '.join(self.loops) if self.loops else ''}"

    @property
    def share(self) -> float | None:
        """Of its limit: 1 is as fast as the machine can be. None where a run of it is so short that a part of it is
        done while its neighbours are.
        """
        is_long = self.seconds > _AT_ONCE * max(1, self.entries)
        return self.limit.seconds / self.seconds if self.limit and is_long else None

    def to_json(self) -> dict[str, Any]:
        """The part as plain data."""
        rates = {"gflops": _rate(self.operations, self.seconds), "gbs": _rate(self.bytes, self.seconds)}
        return {**asdict(self), "name": self.name, "share": self.share, **rates}


@dataclass(frozen=True, slots=True)
class Profile:
    """What a kernel takes: the best run of it, and of the build with clocks; its parts in order; what would help.

    `rest`: seconds that are in no part; `call`: those of the call, outside of the kernel. `busy`: the share of the time
    of its threads in which they computed. `peak`: 1e9 operations a second that the machine can do at most; `rates`: the
    GB/s of its levels of memory. `counters`: what those of the CPU say of a call, where the system shows them.
    """

    name: str
    threads: int
    seconds: float
    instrumented: float
    parts: tuple[LoopTime, ...]
    rest: float
    call: float
    busy: float | None
    advice: tuple[Advice, ...]
    trace: dict[str, Any]
    peak: float
    rates: dict[str, float]
    counters: Counters

    @property
    def overhead(self) -> float:
        """What the clocks cost: 0.01 are one per cent."""
        return self.instrumented / self.seconds - 1

    def to_json(self) -> dict[str, Any]:
        """The profile as plain data, without the trace."""
        return {
            "name": self.name,
            "threads": self.threads,
            "seconds": self.seconds,
            "instrumented": self.instrumented,
            "overhead": self.overhead,
            "busy": self.busy,
            "parts": [part.to_json() for part in self.parts],
            "rest": self.rest,
            "call": self.call,
            "peak": self.peak,
            "rates": self.rates,
            "counters": dict(self.counters.counts),
            "not counted": self.counters.missing,
            "advice": [asdict(one) for one in self.advice],
        }

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Write a run as a file for Perfetto (ui.perfetto.dev) and Chrome's tracing: a track for each thread."""
        with writing(path):
            Path(path).write_text(json.dumps(self.trace), encoding="utf-8")

    @property
    def roofline(self) -> Markup:
        """Its parts below what the machine can do, as SVG; empty where nothing is computed."""
        leaves = [part for part in self.parts if part.limit is not None]
        points = [Point(part.name, part.operations, part.bytes, part.seconds) for part in leaves]
        return roofline_svg(points, self.peak, self.rates)

    def __str__(self) -> str:
        return "\n".join(_lines(self)) + "\n"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        first, *_ = _lines(self)
        rows = [(element("span", name, style=f"padding-left:{depth}em"), *cells) for depth, name, cells in _rows(self)]
        parts = [table(("part", *_COLUMNS), rows), element("p", str(self.counters)), self.roofline]
        if self.advice:
            parts.append(table(("stage", "problem", "step"), ((a.stage, a.problem, a.step) for a in self.advice)))
        return page(first, *parts)


def profile(f: Executable, args: Sequence[Any], repeat: int = 5, machine: Machine | None = None) -> Profile:
    """Profile a kernel on arguments like those of a call; its outputs are written.

    A build of it with clocks runs beside it, by turns; the best of `repeat` runs of each counts. `machine`: rates other
    than those measured here. TargetError for kernels of GPUs and of the interpreter, and for those that call Python.
    """
    if not f.target.can.native or f.kernel.callbacks:
        what = "calls Python" if f.kernel.callbacks else f"is of the target {f.target.kind}"
        raise TargetError(f"clocks are for kernels that run on this CPU alone, and {f.entry_name} {what}")
    if not f.has_loops:
        raise TargetError(f"{f.entry_name} was loaded without its loops: profile it where it is built")
    if not isinstance(repeat, int) or isinstance(repeat, bool) or repeat < 1:
        raise ArgumentError(f"repeat is a number of runs, got {shown(repeat)}")
    args = f.completed(args)
    first = _seconds(partial(f, *args))
    sizes, threads = _sizes(f, args), min(f.target.cores, available_cores())
    most = max(_FEWEST, int(_OVERHEAD * min(first, _seconds(partial(f, *args))) * threads / _CLOCK_SECONDS))
    made = instrumented(f.kernel, sizes, most)
    timed = backend(f.target.kind).compile(made.kernel, f.target, (*f.signature, made.kernel.params[-1]))
    runs = _by_turns(f, timed, args, made.shape, repeat)
    return _profile(f, made, runs, sizes, machine, counted(partial(f, *args)))


@dataclass(frozen=True, slots=True)
class _Runs:
    """The seconds of the best run, those of the best one with clocks, and the times of that, in seconds."""

    seconds: float
    with_clocks: float
    times: Times


def _by_turns(f: Executable, timed: Executable, args: Sequence[Any], shape: tuple[int, int], repeat: int) -> _Runs:
    """Run both builds by turns, as often as asked, and long enough to tell how fast the counter is."""
    plain, runs = list[float](), list[tuple[float, float, Ticks]]()
    timed(*args, np.zeros(shape, np.int64))
    start = perf_counter()
    while len(runs) < max(2, repeat) or perf_counter() - start < _SPAN:
        plain.append(_seconds(partial(f, *args)))
        ticks = np.zeros(shape, np.int64)
        begin = perf_counter()
        runs.append((_seconds(partial(timed, *args, ticks)), begin, ticks))
    (_, begin, first), (_, end, last) = runs[0], runs[-1]
    a_second = float(last[0, FIRST] - first[0, FIRST]) / (end - begin)
    with_clocks, _, ticks = min(runs, key=lambda one: one[0])
    return _Runs(min(plain), with_clocks, (ticks / a_second).astype(np.float64))


def _seconds(run: Callable[[], object]) -> float:
    begin = perf_counter()
    run()
    return perf_counter() - begin


def _sizes(f: Executable, args: Sequence[Any]) -> dict[str, int]:
    """The sizes of a call."""
    found: dict[str, int] = {}
    for param, given in zip(f.signature, args, strict=True):
        if isinstance(param, Var):
            found[param.name] = int(given)
        elif isinstance(param, Buffer):
            shape = zip(param.shape, np.shape(given), strict=False)
            found |= {extent.name: n for extent, n in shape if isinstance(extent, Var)}
    return found


def _profile(
    f: Executable,
    made: Instrumented,
    runs: _Runs,
    sizes: dict[str, int],
    machine: Machine | None,
    counters: Counters,
) -> Profile:
    regions, times = made.regions, runs.times
    walls = _walls(made, times)
    one, all_ = (machine, machine) if machine else (Machine.of(f.target, 1), Machine.of(f.target))
    parents = {r.parent for r in regions}
    shown = [n for n in range(len(regions)) if sum(r.parent == n for r in regions) != 1]
    parts, works = list[LoopTime](), list[tuple[LoopTime, Region, Work]]()
    for number in shown:
        region = regions[number]
        work = work_of(region, sizes, f.kernel.streamed)
        limit = None if number in parents else _limit(work, all_ if region.has_threads else one)
        binds = "" if limit is None else limit.binds if limit.seconds >= _FAR * walls[number] else "latency"
        names, depth = tuple(loop.axis or loop.var.name for loop in region.loops), _depth(regions, number, shown)
        runs_ = region.entries
        part = LoopTime(region.stages, names, depth, runs_, walls[number], work.operations, work.touched, limit, binds)
        parts.append(part)
        works.append((part, region, work))
    leaves = sum(walls[n] for n in range(len(regions)) if n not in parents)
    lanes = _lanes(made, times)
    threads = len({lane for lane, *_ in lanes}) or (all_.rates.threads if regions[0].has_threads else 1)
    return Profile(
        f.entry_name,
        threads,
        runs.seconds,
        runs.with_clocks,
        tuple(parts),
        max(0.0, walls[0] - leaves),
        max(0.0, runs.with_clocks - walls[0]),
        _busy(made, times, threads),
        tuple(advice_of(Advised.of(f), works, walls[0])),
        _trace(f.entry_name, made, times, lanes, counters),
        all_.operations([kind for *_, work in works for kind in work.kinds]) / 1e9,
        {level: all_.bandwidth(level) / 1e9 for level in (*(name for name, _ in all_.caches), MEMORY)},
        counters,
    )


def _depth(regions: Sequence[Region], number: int, shown: Sequence[int]) -> int:
    """Of how many parts that are shown it is a part."""
    parent, depth = regions[number].parent, 0
    while parent is not None:
        depth, parent = depth + (parent in shown), regions[parent].parent
    return depth


def _walls(made: Instrumented, times: Times) -> list[float]:
    """The part that each region has in the time of the kernel: threads that run at once share it by what they took."""
    walls: list[float] = []
    for number in range(len(made.regions)):
        own = float(times[:, 3 * number + TOTAL].sum())
        shared = _shared(made.regions, number)
        if shared is None:
            walls.append(own)
            continue
        whole = float(times[:, 3 * shared + TOTAL].sum())
        parent = made.regions[shared].parent
        walls.append((walls[parent] if parent is not None else whole) * (own / whole if whole else 0.0))
    return walls


def _shared(regions: Sequence[Region], number: int) -> int | None:
    """The region of one iteration of the parallel loop that a region is in."""
    found: int | None = None
    at: int | None = number
    while at is not None and regions[at].parallel is not None:
        found, at = at, regions[at].parent
    return found


def _limit(work: Work, machine: Machine) -> Limit:
    """The time that the machine needs at least: for operations, for what is loaded, and for what caches do not hold."""
    limits = [Limit(work.cost / machine.operations(work.kinds), "compute")]
    if machine.caches:
        nearest = machine.caches[0][0]
        limits.append(Limit(work.loaded(machine.registers) / machine.bandwidth(nearest), nearest))
    for size, level in machine.beyond():
        limits.append(Limit(work.beyond(size) / machine.bandwidth(level), level))
    return max(limits, key=lambda limit: limit.seconds)


def _busy(made: Instrumented, times: Times, threads: int) -> float | None:
    """The share of the time of parallel loops in which their threads computed."""
    spent, there = 0.0, 0.0
    for number, region in enumerate(made.regions):
        if region.parallel is not None and _shared(made.regions, number) == number:
            used = times[:, 3 * number + TOTAL] > 0
            spent += float(times[:, 3 * number + TOTAL].sum())
            begins, ends = times[used, 3 * number + FIRST], times[used, 3 * number + LAST]
            there += threads * float(ends.max() - begins.min()) if used.any() else 0.0
    return min(1.0, spent / there) if there else None


def _lanes(made: Instrumented, times: Times) -> list[tuple[int, int, int, float, float]]:
    """Thread, region, row, begin and end of each iteration of a parallel loop that ran once: what does not overlap is
    of one thread.
    """
    found: list[tuple[int, int, int, float, float]] = []
    for number, region in enumerate(made.regions):
        if region.parallel is None or _shared(made.regions, number) != number:
            continue
        ends: list[float] = []
        rows = [row for row in range(len(times)) if times[row, 3 * number + TOTAL] > 0]
        for row in sorted(rows, key=lambda row: times[row, 3 * number + FIRST]):
            begin, end = (float(times[row, 3 * number + field]) for field in (FIRST, LAST))
            free = [lane for lane, until in enumerate(ends) if until <= begin]
            lane = max(free, key=lambda lane: ends[lane], default=len(ends))
            ends[lane : lane + 1] = [end]
            found.append((lane, number, row, begin, end))
    return found


def _trace(
    name: str,
    made: Instrumented,
    times: Times,
    lanes: Sequence[tuple[int, int, int, float, float]],
    counters: Counters,
) -> dict[str, Any]:
    """The best run as events: parts that ran once for a row lie where they ran, of others there are sums.

    The whole kernel, the first of them, has what counters say of a call.
    """
    start = float(times[0, FIRST])
    thread = {(shared, row): lane + 1 for lane, shared, row, *_ in lanes}
    events = list(_spans(made, times, start, thread))
    events[0]["args"] |= counters.counts
    count = max([1, *thread.values()])
    return document(f"kernel {name}", events, [f"thread {n + 1}" for n in range(count)])


def _spans(
    made: Instrumented, times: Times, start: float, thread: dict[tuple[int, int], int]
) -> Iterator[dict[str, Any]]:
    for number, region in enumerate(made.regions):
        shared = _shared(made.regions, number)
        for row in range(len(times)):
            first, last, total = (float(times[row, 3 * number + field]) for field in (FIRST, LAST, TOTAL))
            once = last - first <= 1.001 * total + 1e-9
            if total > 0 and once:
                what = " + ".join(region.stages)
                loops = [loop.var.name for loop in region.loops]
                about = {"loops": ", ".join(loops), "iteration": row if shared is not None else None}
                lane = thread.get((shared, row), 1) if shared is not None else 1
                yield span(what, "part", first - start, last - first, about, lane)


def _lines(found: Profile) -> Iterator[str]:
    """The table."""
    work = sum(part.operations for part in found.parts if part.limit is not None)
    busy = "" if found.busy is None else f", busy {found.busy:.0%} of the time"
    yield (
        f"{found.name}: {format_seconds(found.seconds)} on {format_threads(found.threads)}{busy}; "
        f"{_rate(work, found.seconds):.4g} GFLOP/s; with clocks {found.overhead:+.1%}"
    )
    rows: list[tuple[str, ...]] = [(*_COLUMNS, "part")]
    rows += [(*cells, f"{'  ' * depth}{name}") for depth, name, cells in _rows(found)]
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]) - 1)]
    for row in rows:
        yield "  " + "  ".join(cell.rjust(w) for cell, w in zip(row[:-1], widths, strict=True)) + "  " + row[-1]
    yield f"  {found.counters}"
    for one in found.advice:
        yield f"  {one}"


def _rows(found: Profile) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Depth, name and cells of each part."""
    whole = sum(p.seconds for p in found.parts if p.limit is not None) + found.rest + found.call
    for p in found.parts:
        share = "" if p.share is None else f"{p.share:.0%}"
        rates = [f"{_rate(amount, p.seconds):.4g}" for amount in (p.operations, p.bytes)]
        time = format_seconds(p.seconds), f"{p.seconds / max(whole, 1e-12):.0%}"
        yield p.depth, p.name, (*time, *rates, share, p.binds)
    for name, seconds in (("between the parts", found.rest), ("the call from Python", found.call)):
        if seconds > _REST * whole:
            yield 0, name, (format_seconds(seconds), f"{seconds / whole:.0%}", "", "", "", "")


def _rate(amount: float, seconds: float) -> float:
    return amount / seconds / 1e9 if seconds else 0.0
