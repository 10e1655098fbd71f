"""What makes parts of a kernel slow, with the step that would help: a line of Python that was run and proven."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING

from tensorlang.dataclass import dataclass
from tensorlang.dtypes import info
from tensorlang.errors import TensorlangError
from tensorlang.ir.expr import Binary, variables
from tensorlang.ir.expr import walk as walk_expr
from tensorlang.ir.overflow import exact_value
from tensorlang.ir.stmt import Allocate, For, Kernel, walk
from tensorlang.profiling.regions import Region
from tensorlang.profiling.work import Work
from tensorlang.runtime.threads import available_cores
from tensorlang.schedule import Schedule
from tensorlang.schedule.derive import derive
from tensorlang.schedule.explain import stage_notes
from tensorlang.schedule.primitives.annotate import computed_inside
from tensorlang.schedule.proposals.replayed import Refusal
from tensorlang.target.spec import Target
from tensorlang.te.axis import AxisKind, extent_of
from tensorlang.te.operation import ComputeOp, Reduce, loads

if TYPE_CHECKING:
    from tensorlang.profiling.profile import LoopTime
    from tensorlang.runtime.executable import Executable

_PART = 0.05
"""Parts with less of the time are not worth a warning."""
_FEW = 4
"""Iterations of a loop that vectors would not fill."""
_LANES, _PARTS = 16, 16
"""Partial sums in a vector, and for threads."""
_AGAIN = 1.5
"""How often an element is computed, from where on that counts."""
_LONG = 20e-6
"""Seconds of a kernel that threads are worth while for."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What a stage suffers from, the seconds of the part it is in, and a step that would help: Python, or words."""

    stage: str
    problem: str
    seconds: float
    step: str

    def __str__(self) -> str:
        return f"{self.stage}: {self.problem}; {self.step}"


@dataclass(frozen=True, slots=True)
class Advised:
    """A kernel to give advice on: its loops, what they run on, and the schedule they are of, where that is known."""

    kernel: Kernel
    target: Target
    schedule: Schedule | None

    @classmethod
    def of(cls, f: Executable) -> Advised:
        """The kernel of an executable, with the schedule that it was built from."""
        schedule = getattr(f.origin, "schedule", None)
        return cls(f.kernel, f.target, schedule if isinstance(schedule, Schedule) else None)


def advice_of(f: Advised, parts: Sequence[tuple[LoopTime, Region, Work]], seconds: float) -> Iterator[Advice]:
    """What would help the parts that take time, dearest first."""
    s = f.schedule
    leaves = [row for row in parts if row[0].limit is not None and row[0].seconds >= _PART * seconds]
    for part, region, work in sorted(leaves, key=lambda row: -row[0].seconds):
        yield from _scalar(s, part, region, work)
        yield from _gathers(part, work)
        yield from _narrow_sums(s, part)
    if seconds >= _LONG:
        yield from _one_thread(f, parts, seconds)
    yield from _recomputed(s, seconds)
    yield from _large_copies(f, seconds)


def _scalar(s: Schedule | None, part: LoopTime, region: Region, work: Work) -> Iterator[Advice]:
    """A part whose operations are not in vectors."""
    scalar = [a for a in work.accesses if a.is_store and a.lanes is None] or [
        a for a in work.accesses if a.lanes is None
    ]
    if work.operations == 0 or work.in_vectors > work.operations / 2 or not scalar:
        return
    deepest = max(scalar, key=lambda a: len(a.loops))
    if not deepest.loops or deepest.loops[-1].trips < _FEW:
        return
    stage = part.stages[-1]
    lines = [] if s is None else [*_vectorized(s, stage)]
    words = f"vectorize the last axis of {stage}; of a sum, put an axis of the result inside (reorder), or rfactor"
    step, loop = _proven(s, lines) or words, deepest.loops[-1].var
    whole = f"the reduction over {loop} is not split into partial results"
    problem = whole if ".rfactor(" in step else f"the inner loop {loop} is scalar"
    yield Advice(stage, problem, part.seconds, step)


def _vectorized(s: Schedule, stage: str) -> Iterator[str]:
    """Lines that may make vectors of a stage."""
    if stage not in s.state.stages or not hasattr(s[stage].op, "axis"):
        return
    long, reduced = _long_axes(s, stage)
    spatial = [axis for axis in long if not computed_inside(s.state, stage, axis)]
    near = [axis for axis in reversed(spatial) if not _apart(s, stage, axis)]
    for axis in near:
        yield from _along(stage, axis, reduced)
    yield from (_in_parts(s, stage, axis, f"factor={_LANES}", "i", "vectorize") for axis in reduced)
    for axis in reversed(spatial):
        if axis not in near:
            yield from _along(stage, axis, reduced)


def _along(stage: str, axis: str, reduced: list[str]) -> Iterator[str]:
    """Lines that make vectors along an axis of the result, inside of the sum where there is one."""
    if reduced:
        yield f"s[{stage!r}].reorder({', '.join(map(repr, [*reduced, axis]))}); s[{stage!r}].vectorize({axis!r})"
    yield f"s[{stage!r}].vectorize({axis!r})"


def _apart(s: Schedule, stage: str, axis: str) -> bool:
    """Whether neighbours along an axis are read from different rows."""
    return any(axis in variables(index) for load in loads(s.program[stage]) for index in load.index[:-1])


def _long_axes(s: Schedule, stage: str) -> tuple[list[str], list[str]]:
    """The loops of a stage over axes of its result, and over those of its sum, but for short ones."""
    kinds = s.state.axis_kinds(stage)
    found = [(a, kinds[a] is AxisKind.REDUCE) for a in s.state.stages[stage].leaves]
    long = [(a, summed) for a, summed in found if (extent_of(s.state.axis(stage, a).extent) or _LANES) >= _FEW]
    return [a for a, summed in long if not summed], [a for a, summed in long if summed]


def _in_parts(s: Schedule, stage: str, axis: str, size: str, part: str, how: str) -> str:
    """The line that makes a sum of partial sums, which run at once; those of a vector lie side by side."""
    own, other = f"{axis}_{part}", f"{axis}_{'o' if part == 'i' else 'i'}"
    inside = f"s['{stage}.rf'].reorder({other!r}, {own!r}); " if part == "i" else ""
    place = len(s[stage].op.axis) if part == "i" else 0
    return (
        f"s[{stage!r}].split({axis!r}, {size}); s.rfactor({stage!r}, {own!r}, factor_axis={place}); "
        f"{inside}s['{stage}.rf'].{how}({own!r})"
    )


def _gathers(part: LoopTime, work: Work) -> Iterator[Advice]:
    """Vectors of elements that do not lie side by side."""
    told: set[str] = set()
    for a in work.accesses:
        if a.lanes is None or a.stride in (0, 1) or a.buffer.name in told:
            continue
        told.add(a.buffer.name)
        changing = "where data say" if a.follows_data else "at distances that change"
        apart = changing if a.stride is None else f"{a.stride} elements apart"
        verb = "writes" if a.is_store else "reads"
        words = (
            f"vectorize an axis that {a.buffer.name} has last, or read it by s.cache_read and transform_layout"
            if not a.follows_data
            else f"order what says where, or read rows of {a.buffer.name} as a whole"
        )
        yield Advice(part.stages[-1], f"a vector {verb} {a.buffer.name} {apart} (a gather)", part.seconds, words)


def _narrow_sums(s: Schedule | None, part: LoopTime) -> Iterator[Advice]:
    """Sums of products in floats of 16 bits or less: CPUs make them in float32, and round at every term."""
    ops = () if s is None else (s.program[stage] for stage in part.stages if stage in s.state.stages)
    for op in ops:
        if not isinstance(op, ComputeOp) or not isinstance(value := op.body[0], Reduce):
            continue
        terms = prod(extent_of(axis.extent) or _LANES for axis in op.reduce_axes)
        is_product = any(isinstance(node, Binary) for node in walk_expr(value.sources[0]))
        if info(value.dtype).is_narrow_float and is_product and terms >= _LANES:
            problem = f"its sums are rounded to {value.dtype} at every term"
            step = "cast the terms to float32 and the sum back, as topi.matmul does"
            yield Advice(op.name, problem, part.seconds, step)
            return


def _one_thread(f: Advised, parts: Sequence[tuple[LoopTime, Region, Work]], seconds: float) -> Iterator[Advice]:
    """A part without threads on a machine that has them."""
    s = f.schedule
    cores = min(f.target.cores, available_cores())
    if cores < 2:
        return
    for part, region, _ in parts:
        if part.limit is None or region.has_threads or part.seconds < max(_LONG, _PART * seconds):
            continue
        stage = part.stages[-1]
        lines = [] if s is None or stage not in s.state.stages else [*_parallel(s, stage)]
        words = f"run an outer axis of {stage} in parallel, or split its sum: rfactor, then parallel"
        yield Advice(stage, f"runs on one of {cores} threads", part.seconds, _proven(s, lines) or words)


def _parallel(s: Schedule, stage: str) -> Iterator[str]:
    """Lines that may run a stage on several threads: the outermost loop, or parts of a sum."""
    spatial, reduced = _long_axes(s, stage)
    yield from (f"s[{stage!r}].parallel({axis!r})" for axis in spatial[:1])
    yield from (_in_parts(s, stage, axis, f"nparts={_PARTS}", "o", "parallel") for axis in reduced)


def _recomputed(s: Schedule | None, seconds: float) -> Iterator[Advice]:
    """Stages whose elements are computed several times."""
    if s is None:
        return
    try:
        notes = list(stage_notes(s.state, derive(s.state), {}))
    except TensorlangError:
        return
    for note in notes:
        if note.recomputed is not None and note.recomputed >= _AGAIN:
            step = _proven(s, [f"s[{note.stage!r}].compute_root()"]) or "compute it farther out"
            yield Advice(note.stage, f"every element is computed {note.recomputed:.1f} times", seconds, step)


def _large_copies(f: Advised, seconds: float) -> Iterator[Advice]:
    """Arrays inside of loops that the second cache does not hold."""
    outer = next((s for s in walk(f.kernel.body) if isinstance(s, For)), None)
    for inner in () if outer is None else walk(outer.body):
        if isinstance(inner, Allocate):
            extents = [exact_value(n, {}) or 1 for n in inner.buffer.shape]
            size = prod(extents) * info(inner.buffer.dtype).bytes
            if size > f.target.second_cache:
                problem = f"its {size:,} bytes inside of a loop exceed the second cache"
                yield Advice(inner.buffer.name, problem, seconds, "make smaller tiles of the loops around it")


def _proven(s: Schedule | None, lines: Sequence[str]) -> str:
    """The first line that runs on the schedule and is legal; "" for none."""
    if s is None:
        return ""
    for line in lines:
        found = Refusal(s, "").sorted([line]).legal
        if found:
            return found[0]
    return ""
