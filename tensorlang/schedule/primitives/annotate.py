"""How the iterations of a loop run: vectorize, unroll, parallel, bind, env_threads."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.errors import BadArgument, NoLanes
from tensorlang.ir.expr import same, to_text
from tensorlang.ir.simplify import simplify
from tensorlang.ir.stmt import LoopKind
from tensorlang.ir.thread_tags import TAGS, VIRTUAL
from tensorlang.location import caller
from tensorlang.schedule import order
from tensorlang.schedule.axis_range import constant
from tensorlang.schedule.derive import ranges_in_place
from tensorlang.schedule.names import nearest
from tensorlang.schedule.primitive import Outputs, Primitive, StageName, primitive
from tensorlang.schedule.state import Annotation, ScheduleState
from tensorlang.te.axis import AxisKind
from tensorlang.te.operation import HybridOp


def _annotate(state: ScheduleState, stage: str, axis: str, note: Annotation) -> ScheduleState:
    state.looped(stage)
    leaf = state.leaf(stage, axis)
    current = state.stages[stage]
    if current.annotations.get(leaf) == note:
        return state
    if leaf in current.annotations:
        old = current.annotations[leaf].kind.value
        raise BadArgument("", f"axis {axis} of {stage} is {old} already")
    return state.with_stage(replace(current, annotations={**current.annotations, leaf: note}))


def _constant_extent(state: ScheduleState, stage: str, axis: str, word: str) -> None:
    state.looped(stage)
    leaf = state.leaf(stage, axis)
    moved = state.stages[stage].attach is not None and state.axis_kinds(stage)[leaf] is AxisKind.SPATIAL
    # In a program without symbolic sizes every range is of numbers, in any place.
    known = ranges_in_place(state, stage) if moved and state.sizes else state.axis_ranges(stage)
    if constant(known[leaf].extent) is None:
        raise BadArgument(
            "",
            f"{word} needs a constant extent, and {axis} has a symbolic one",
            suggested=[f"outer, inner = s[{stage!r}].split({axis!r}, factor=4); s[{stage!r}].{word}(inner)"],
        )


@primitive("vectorize")
@dataclass(frozen=True, slots=True)
class Vectorize(Primitive):
    """Run the iterations of an axis as lanes of vector instructions.

    Rewrite: `for i in range(16): C[i] = ...` -> `C[0:16] = ...`.
    Legal when: no dependence joins two lanes, except from a statement of the loop's body to a later one, in a later
    lane; and nothing is computed inside the axis: `s[C].vectorize` warns then (NoLanes), and takes no step.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((100,), name="A")
        >>> B = te.compute((100,), lambda i: A[i] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> i_o, i_i = s[B].split("i", factor=16)
        >>> s[B].vectorize(i_i)
    """

    stage: StageName
    axis: str

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        state.looped(self.stage)
        inside = computed_inside(state, self.stage, self.axis)
        if inside:
            raise BadArgument("", f"{inside[0]} is computed inside {self.axis}: its buffer has no lanes")
        return _annotate(state, self.stage, self.axis, Annotation(LoopKind.VECTORIZED)), ()


def computed_inside(state: ScheduleState, stage: str, axis: str) -> list[str]:
    """The stages that are computed in each iteration of an axis."""
    places = [(other.name, other.attach.axis) for other in state.attached_to(stage) if other.attach is not None]
    return [name for name, place in places if axis in order.path(state.stages[stage].order, place)]


def warn_of_no_lanes(stage: str, axis: str, inside: Sequence[str]) -> None:
    """Say that a loop is not run in vectors, as it holds the computation of other stages."""
    text = f"{', '.join(inside)} is computed inside {axis} of {stage}, whose iterations run one after the other"
    where = caller()
    warnings.warn_explicit(text, NoLanes, where.file, where.line)


@primitive("unroll")
@dataclass(frozen=True, slots=True)
class Unroll(Primitive):
    """Copy the body of a loop once per iteration.

    Rewrite: `for i in range(3): S(i)` -> `S(0); S(1); S(2)`.
    Legal when: the extent is constant.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((100,), name="A")
        >>> B = te.compute((100,), lambda i: A[i] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> i_o, i_i = s[B].split("i", factor=4)
        >>> s[B].unroll(i_i)
    """

    stage: StageName
    axis: str

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        _constant_extent(state, self.stage, self.axis, "unroll")
        return _annotate(state, self.stage, self.axis, Annotation(LoopKind.UNROLLED)), ()


@primitive("parallel")
@dataclass(frozen=True, slots=True)
class Parallel(Primitive):
    """Share the iterations of an axis among CPU threads.

    Rewrite: `for i in range(n)` -> `parallel i in range(n)`.
    Legal when: no dependence joins two iterations; reductions count, and need rfactor first.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((100,), name="A")
        >>> B = te.compute((100,), lambda i: A[i] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> s[B].parallel("i")
    """

    stage: StageName
    axis: str

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        return _annotate(state, self.stage, self.axis, Annotation(LoopKind.PARALLEL)), ()


@primitive("bind")
@dataclass(frozen=True, slots=True)
class Bind(Primitive):
    """Bind an axis to a thread axis of the device (`blockIdx.x`, `threadIdx.x`, ...).

    Rewrite: `for i in range(n)` -> `threadIdx.x i in range(n)`.
    Legal when: no dependence joins two iterations, and no loop around or inside is bound to the same thread axis.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((100,), name="A")
        >>> B = te.compute((100,), lambda i: A[i] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> s[B].bind("i", te.thread_axis("threadIdx.x"))
    """

    stage: StageName
    axis: str
    thread: str

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        _require_thread(self.thread)
        bound = _annotate(state, self.stage, self.axis, Annotation(LoopKind.BOUND, self.thread))
        tree = bound.stages[self.stage].order
        for other in _bound_to(bound, self.stage, self.thread):
            together = self.axis in order.path(tree, other) or other in order.path(tree, self.axis)
            if other != self.axis and together and self.thread != VIRTUAL:
                raise BadArgument("", f"{self.thread} is bound to axis {other} of {self.stage} already")
        _require_one_launch(bound, self.stage)
        return bound, ()


@primitive("env_threads")
@dataclass(frozen=True, slots=True)
class EnvThreads(Primitive):
    """Launch threads of the device once, around the time loop of a scan, for all loops bound to them.

    Rewrite: none; loops that are bound to one of the threads share it from then on, in every time step.
    Legal when: the operation is a scan, and the loops bound to one thread axis have one extent.
    Example:
        >>> from tensorlang import te
        >>> X = te.placeholder((10, 32), name="X")
        >>> state = te.placeholder((10, 32), name="state")
        >>> init = te.compute((1, 32), lambda t, i: X[t, i], name="init")
        >>> update = te.compute((10, 32), lambda t, i: state[t - 1, i] + X[t, i], name="update")
        >>> S = te.scan(init, update, state, inputs=[X])
        >>> s = te.create_schedule(S.op)
        >>> s[S].env_threads([te.thread_axis("threadIdx.x")])
        >>> s[update].bind(update.op.axis[1], te.thread_axis("threadIdx.x"))
    """

    stage: StageName
    threads: tuple[str, ...]

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        op = state.looped(self.stage)
        if not isinstance(op, HybridOp) or op.time is None:
            raise BadArgument("", f"env_threads is for scans, and {self.stage} is none; bind its axes")
        current = state.stages[self.stage]
        for thread in self.threads:
            _require_thread(thread)
            if thread in current.launched or self.threads.count(thread) > 1:
                raise BadArgument("", f"{thread} is launched around {self.stage} already")
        launched = state.with_stage(replace(current, launched=(*current.launched, *self.threads)))
        _require_one_launch(launched, self.stage)
        return launched, ()


def _require_thread(thread: str) -> None:
    if thread not in TAGS:
        raise BadArgument("", f"unknown thread axis {thread!r}; {nearest(thread, TAGS)}")


def _bound_to(state: ScheduleState, stage: str, thread: str) -> list[str]:
    """The loops of a stage that are bound to a thread axis."""
    return [a for a, note in state.stages[stage].annotations.items() if note.thread == thread]


def _require_one_launch(state: ScheduleState, stage: str) -> None:
    """Threads that are launched once have one number, whatever loops run on them."""
    known = state.axis_ranges(stage)
    for thread in state.stages[stage].launched:
        first, *others = _bound_to(state, stage, thread) or [""]
        for axis in others:
            wanted, got = (simplify(known[a].extent) for a in (first, axis))
            if not same(wanted, got):
                raise BadArgument(
                    "",
                    f"{thread} is launched once for all of {stage}: {first} runs on {to_text(wanted)} threads, "
                    f"and {axis} would run on {to_text(got)}",
                    suggested=[f"split {axis} so that the part that is bound has the extent {to_text(wanted)}"],
                )
