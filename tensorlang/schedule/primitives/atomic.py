"""Updates that threads may share: atomic."""

from __future__ import annotations

from dataclasses import replace

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import BadArgument
from tensorlang.ir.expr import to_text
from tensorlang.polyhedral.ordered import sources, updated
from tensorlang.schedule.primitive import Outputs, Primitive, StageName, primitive
from tensorlang.schedule.state import ScheduleState
from tensorlang.te.operation import ComputeOp, HybridOp


@primitive("atomic")
@dataclass(frozen=True, slots=True)
class Atomic(Primitive):
    """Update the elements of a stage atomically, so that threads may share a loop over which it reduces.

    Sums of floats may then differ from run to run in their last digits: threads come in any order.
    Rewrite: `parallel k: B[i] = B[i] + A[i, k]` -> `parallel k: atomic B[i] = B[i] + A[i, k]`.
    Legal when: the stage reduces one value by add, mul, min, max, and, or, or has updates such as `H[x[i]] += 1`; a
    strict schedule allows it for whole numbers only. Lanes of one vector still must not meet in an element.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((8, 100), name="A")
        >>> k = te.reduce_axis((0, 100), "k")
        >>> B = te.compute((8,), lambda i: te.sum(A[i, k], axis=k), name="B")
        >>> s = te.create_schedule(B.op)
        >>> s[B].atomic()
        >>> s[B].reorder("k", "i")
        >>> s[B].parallel("k")
    """

    stage: StageName

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        op = state.looped(self.stage)
        touched = _updated(op)
        if not touched:
            raise BadArgument("", f"{self.stage} updates no element: atomic is for reductions and updates like +=")
        floats = [d for d in touched if dtypes.info(d).is_float]
        if state.strict and floats:
            raise BadArgument(
                "",
                f"the schedule is strict, and atomic sums of {floats[0]} come in any order",
                suggested=["parallel on an axis that is not reduced"],
            )
        return state.with_stage(replace(state.stages[self.stage], atomic=True)), ()


def _updated(op: ComputeOp | HybridOp) -> list[str]:
    """The dtypes of the elements that an operation updates by an operator."""
    if isinstance(op, HybridOp):
        return [s.store.buffer.dtype for s in sources(op).values() if s.reducer]
    reduction = op.reduction
    if reduction is None:
        return []
    reducer = reduction.reducer
    if op.num_outputs > 1:
        why = f"{op.name} reduces {op.num_outputs} values together: no instruction updates several at once"
        raise BadArgument(
            "", why, suggested=[f"s.rfactor({op.name!r}, ...), and run the axis of partial results in parallel"]
        )
    if updated(reducer.result[0], reducer.lhs[0]) is None:
        why = f"{op.name} reduces by {to_text(reducer.result[0])}; atomic knows add, mul, min, max, and, or"
        raise BadArgument("", why)
    return [op.dtype]
