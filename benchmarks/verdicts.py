"""How long a proof takes: the verdict on complete schedules of the kernels of PolyBench, and on a chain of stages.

Sizes are symbolic. Times are processor time of this process (`time.process_time`), medians. Nothing is remembered from
one repeat to the next, but for the dependences of the program as declared: those are computed once per program, and
have a figure of their own.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.figure import Figure
from examples.polybench import KERNELS
from tensorlang import te
from tensorlang.polyhedral.declared import declared
from tensorlang.polyhedral.ordered import first_inside, sources, touching
from tensorlang.polyhedral.zeros import begins_as_zeros
from tensorlang.schedule import Schedule, create_schedule
from tensorlang.schedule.check import verify
from tensorlang.schedule.state import ScheduleState
from tensorlang.schedule.trace import Trace
from tensorlang.te.operation import HybridOp
from tensorlang.te.program import Program

REPEATS = 15
ONCE = (declared, sources, touching, first_inside, begins_as_zeros)
"""What is computed once per program."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Milliseconds: dependences as declared, once per program; a verdict from nothing; one more step, all known."""

    name: str
    statements: int
    declared: float
    complete: float
    step: float

    def __str__(self) -> str:
        times = "".join(f"{t:>10.2f}" for t in (self.declared, self.complete, self.step))
        return f"{self.name:<20}{self.statements:>11}{times}"


HEADER = f"{'':<20}{'statements':>11}{'declared':>10}{'verdict':>10}{'one step':>10}  (ms)"


def measure() -> list[Figure]:
    """Print the table of all kernels, and return the figures that have goals."""
    print(HEADER, file=sys.stderr)
    kernels = []
    for name, case in KERNELS.items():
        s = case.declare().create_schedule()
        case.schedule(s)
        kernels.append(_verdict(name, s))
        print(kernels[-1], file=sys.stderr)
    tiles = _verdict("conv, bias, relu, pool", chain())
    print(tiles, file=sys.stderr)
    worst, slowest = (max(kernels, key=key) for key in (_complete, _step))
    return [
        Figure(f"verdict on a PolyBench kernel, the slowest ({worst.name})", worst.complete, "ms", 5),
        Figure("verdict on a PolyBench kernel, median of 30", statistics.median(map(_complete, kernels)), "ms"),
        Figure(f"one more step on a PolyBench kernel, the slowest ({slowest.name})", slowest.step, "ms", 5),
        Figure("one more step on a PolyBench kernel, median of 30", statistics.median(map(_step, kernels)), "ms"),
        Figure("dependences of a PolyBench kernel, once, median of 30", statistics.median(map(_once, kernels)), "ms"),
        Figure("verdict on conv, bias, relu and pool in tiles", tiles.complete, "ms", 20),
    ]


def _complete(verdict: Verdict) -> float:
    return verdict.complete


def _step(verdict: Verdict) -> float:
    return verdict.step


def _once(verdict: Verdict) -> float:
    return verdict.declared


def chain() -> Schedule:
    """A convolution with bias, relu and pooling: computed tile by tile of the result, the rows of tiles in parallel."""
    n, filters, channels = te.var("n"), 16, 8
    image = te.placeholder((channels, 2 * n + 2, 2 * n + 2), name="image")
    weights = te.placeholder((filters, channels, 3, 3), name="weights")
    offset = te.placeholder((filters,), name="offset")
    c, y, x = (te.reduce_axis((0, k), name=name) for name, k in (("c", channels), ("y", 3), ("x", 3)))
    py, px = (te.reduce_axis((0, 2), name=name) for name in ("py", "px"))
    conv = te.compute(
        (filters, 2 * n, 2 * n),
        lambda f, i, j: te.sum(image[c, i + y, j + x] * weights[f, c, y, x], axis=[c, y, x]),
        name="conv",
    )
    bias = te.compute(conv.shape, lambda f, i, j: conv[f, i, j] + offset[f], name="bias")
    relu = te.compute(conv.shape, lambda f, i, j: te.max(bias[f, i, j], 0.0), name="relu")
    pool = te.compute(
        (filters, n, n), lambda f, i, j: te.max(relu[f, 2 * i + py, 2 * j + px], axis=[py, px]), name="pool"
    )
    s = create_schedule(pool.op)
    f, i, j = pool.op.axis
    io, jo, _, ji = s[pool].tile(i, j, 4, 16)
    s[pool].reorder(io, jo, f)
    s[pool].parallel(io)
    for stage in (relu, bias, conv):
        s[stage].compute_at(s[pool], f)
    s[relu].vectorize(relu.op.axis[2])
    s[pool].vectorize(ji)
    return s


def _verdict(name: str, schedule: Schedule) -> Verdict:
    trace, program = schedule.trace, schedule.original
    *most, last = trace.steps

    def cold() -> float:
        state = _replayed(program, trace)
        _forget()
        return _milliseconds(lambda: verify(state))

    def one_more() -> float:
        before = _replayed(program, Trace(tuple(most)))
        verify(before)

        def step() -> None:
            after, _ = last.apply(before)
            verify(after)

        return _milliseconds(step)

    def once() -> float:
        declared.cache_clear()
        return _milliseconds(lambda: [declared(op, state.sizes, state.strict, state.facts) for op in ordered])

    state = schedule.state
    ordered = [op for op in state.program.ops if isinstance(op, HybridOp)]
    found = _median(once), _median(cold), _median(one_more)
    statements = sum(len(stage.strands) for stage in state.stages.values())
    return Verdict(name, statements, *found)


def _replayed(program: Program, trace: Trace) -> ScheduleState:
    """The state after the steps of a trace, on a new schedule, nothing proven."""
    schedule = Schedule(program, {}, ())
    for step in trace.steps:
        schedule.advance(step, check=False)
    return schedule.state


def _forget() -> None:
    """Clear all that analyses of schedules remember, but what is computed once per program."""
    rooms = ("tensorlang.schedule", "tensorlang.polyhedral", "tensorlang.ir")
    for name, module in list(sys.modules.items()):
        if name.startswith(rooms):
            for found in vars(module).values():
                if hasattr(found, "cache_clear") and found not in ONCE and found.__module__.startswith(rooms):
                    found.cache_clear()


def _milliseconds(function: Callable[[], object]) -> float:
    start = time.process_time()
    function()
    return 1e3 * (time.process_time() - start)


def _median(function: Callable[[], float]) -> float:
    function()
    gc.collect()
    gc.freeze()  # the objects of earlier kernels are not what a verdict has to look through
    return statistics.median(function() for _ in range(REPEATS))
