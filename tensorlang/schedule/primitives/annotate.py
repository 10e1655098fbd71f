"""How the iterations of a loop run: vectorize, unroll, parallel, bind."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tensorlang.errors import BadArgument
from tensorlang.ir.stmt import LoopKind
from tensorlang.schedule import order
from tensorlang.schedule.derive import ranges_in_place
from tensorlang.schedule.primitive import Outputs, primitive
from tensorlang.schedule.relation import constant
from tensorlang.schedule.state import Annotation, ScheduleState

THREADS = ("blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z", "vthread")


def _annotate(state: ScheduleState, stage: str, axis: str, note: Annotation) -> ScheduleState:
    state.looped(stage)
    leaf = state.leaf(stage, axis)
    current = state.stages[stage]
    if leaf in current.annotations:
        old = current.annotations[leaf].kind.value
        raise BadArgument("", f"axis {axis} of {stage} is {old} already")
    return state.with_stage(replace(current, annotations={**current.annotations, leaf: note}))


def _constant_extent(state: ScheduleState, stage: str, axis: str, word: str) -> None:
    state.looped(stage)
    leaf = state.leaf(stage, axis)
    attached = state.stages[stage].attach is not None
    known = ranges_in_place(state, stage) if attached else state.axis_ranges(stage)
    if constant(known[leaf].extent) is None:
        raise BadArgument(
            "",
            f"{word} needs a constant extent, and {axis} has a symbolic one",
            legal=[f"split {axis} by a constant factor and {word} the inner axis"],
        )


def _text(word: str, stage: str, axis: str) -> str:
    return f"s[{stage!r}].{word}({axis!r})"


@primitive("vectorize")
@dataclass(frozen=True, slots=True)
class Vectorize:
    """Run the iterations of an axis as lanes of vector instructions.

    Rewrite: `for i in range(16): C[i] = ...` -> `C[0:16] = ...`.
    Legal when: the extent is constant, no dependence joins two lanes, and nothing is computed inside the axis.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((100,), name="A")
        >>> B = te.compute((100,), lambda i: A[i] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> i_o, i_i = s[B].split("i", factor=16)
        >>> s[B].vectorize(i_i)
    """

    stage: str
    axis: str

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        _constant_extent(state, self.stage, self.axis, "vectorize")
        for other in state.attached_to(self.stage):
            assert other.attach is not None
            if self.axis in order.path(state.stages[self.stage].order, other.attach.axis):
                raise BadArgument("", f"{other.name} is computed inside {self.axis}: its buffer has no lanes")
        return _annotate(state, self.stage, self.axis, Annotation(LoopKind.VECTORIZED)), ()

    def text(self) -> str:
        return _text("vectorize", self.stage, self.axis)


@primitive("unroll")
@dataclass(frozen=True, slots=True)
class Unroll:
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

    stage: str
    axis: str

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        _constant_extent(state, self.stage, self.axis, "unroll")
        return _annotate(state, self.stage, self.axis, Annotation(LoopKind.UNROLLED)), ()

    def text(self) -> str:
        return _text("unroll", self.stage, self.axis)


@primitive("parallel")
@dataclass(frozen=True, slots=True)
class Parallel:
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

    stage: str
    axis: str

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        return _annotate(state, self.stage, self.axis, Annotation(LoopKind.PARALLEL)), ()

    def text(self) -> str:
        return _text("parallel", self.stage, self.axis)


@primitive("bind")
@dataclass(frozen=True, slots=True)
class Bind:
    """Bind an axis to a thread axis of the device (`blockIdx.x`, `threadIdx.x`, ...).

    Rewrite: `for i in range(n)` -> `threadIdx.x i in range(n)`.
    Legal when: no dependence joins two iterations, and no loop around is bound to the same thread axis.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((100,), name="A")
        >>> B = te.compute((100,), lambda i: A[i] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> s[B].bind("i", te.thread_axis("threadIdx.x"))
    """

    stage: str
    axis: str
    thread: str

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        if self.thread not in THREADS:
            raise BadArgument("", f"unknown thread axis {self.thread!r}; there are {', '.join(THREADS)}")
        taken = [a for a, n in state.stage(self.stage).annotations.items() if n.thread == self.thread]
        if taken and self.thread != "vthread":
            raise BadArgument("", f"{self.thread} is bound to axis {taken[0]} of {self.stage} already")
        return _annotate(state, self.stage, self.axis, Annotation(LoopKind.BOUND, self.thread)), ()

    def text(self) -> str:
        return f"s[{self.stage!r}].bind({self.axis!r}, {self.thread!r})"
