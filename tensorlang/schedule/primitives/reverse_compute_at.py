"""Consumers inside the loops of their producer: reverse_compute_at."""

from __future__ import annotations

from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.errors import BadArgument
from tensorlang.ir.stmt import LoopKind
from tensorlang.schedule import order
from tensorlang.schedule.primitive import Outputs, Primitive, StageName, primitive
from tensorlang.schedule.state import Attach, ScheduleState
from tensorlang.te.axis import AxisKind
from tensorlang.te.operation import HybridOp


@primitive("reverse_compute_at")
@dataclass(frozen=True, slots=True)
class ReverseComputeAt(Primitive):
    """Compute a stage inside a loop of its producer: in each iteration the points whose last input was made there.

    The array of the stage is kept whole, so that it may be an output; the loops of the stage run over its part in one
    iteration. Other consumers of the producer may follow it in the same way, and so may consumers of this stage.
    Rewrite: `for i_o: P[part of i_o]`, `C` -> `for i_o: P[part of i_o]; C[what is ready]`.
    Legal when: the producer stands at the root, its loops down to that one do not reduce, every point of the stage has
    its place in one iteration, and what it reads is written before.
    Example:
        >>> from tensorlang import te
        >>> A, B = te.placeholder((64, 32), name="A"), te.placeholder((32, 64), name="B")
        >>> k = te.reduce_axis((0, 32), "k")
        >>> C = te.compute((64, 64), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
        >>> D = te.compute((64, 64), lambda i, j: te.max(C[i, j], 0.0), name="D")
        >>> s = te.create_schedule(D.op)
        >>> i_o, j_o, i_i, j_i = s[C].tile("i", "j", 8, 16)
        >>> s[D].reverse_compute_at(s[C], j_o)
    """

    stage: StageName
    parent: StageName
    axis: str

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        state.compute_op(self.stage)
        if isinstance(state.looped(self.parent), HybridOp):
            why = f"{self.parent} is a hybrid stage"
            raise BadArgument("", why, suggested=[f"s[{self.parent!r}].fuse_with(..., stage=s[{self.stage!r}])"])
        axis = state.leaf(self.parent, self.axis)
        current, host = state.stages[self.stage], state.stages[self.parent]
        if self.stage == self.parent:
            raise BadArgument("", f"{self.stage} cannot be computed inside itself")
        for name in (self.stage, self.parent):
            place = state.stages[name].attach
            if place is not None:
                why = f"{name} is computed inside {place.axis} of {place.stage}; it has to stand at the root"
                raise BadArgument("", why, suggested=[f"s[{name!r}].compute_root(); ..."])
        kinds = state.axis_kinds(self.parent)
        for around in order.path(host.order, axis):
            if kinds[around] is AxisKind.REDUCE:
                raise BadArgument("", f"inside {around} no element of {self.parent} is complete: it reduces")
            if host.kind(around) is LoopKind.VECTORIZED:
                raise BadArgument("", f"{around} is vectorised: its lanes run no other stage")
        return state.with_stage(replace(current, attach=Attach(self.parent, axis, after=True))), ()
