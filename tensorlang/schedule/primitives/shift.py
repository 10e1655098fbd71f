"""Iterations under other numbers: shift, reverse."""

from __future__ import annotations

from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.errors import BadArgument
from tensorlang.ir.expr import Expr
from tensorlang.ir.simplify import simplify
from tensorlang.schedule import order
from tensorlang.schedule.axis_range import ZERO, AxisRange, hull, symbolic
from tensorlang.schedule.index_text import names_lookup, parse_index
from tensorlang.schedule.names import nearest
from tensorlang.schedule.primitive import IndexText, Outputs, Primitive, StageName, primitive
from tensorlang.schedule.primitives.loops import fresh, made_from, require_plain
from tensorlang.schedule.relation import ReverseRelation, ShiftRelation, forward
from tensorlang.schedule.state import ScheduleState
from tensorlang.te.operation import ComputeOp


def size_expr(text: str, state: ScheduleState) -> Expr:
    """Read an expression of the sizes; BadArgument when it is anything else."""
    return symbolic(parse_index(text, names_lookup({}, state.decisions, state.sizes)))


def shared_range(a: AxisRange, b: AxisRange) -> AxisRange:
    """The range of a loop that runs two ranges."""
    both = hull(a, b)
    return AxisRange(simplify(both.lower), simplify(both.extent))


@primitive("shift")
@dataclass(frozen=True, slots=True)
class Shift(Primitive):
    """Number the iterations of an axis from `by` on; with `statement`, those of one statement of the loop only.

    Rewrite: `for i in range(n): S(i)` -> `for i_s in range(by, n + by): S(i_s - by)`. Of one statement T:
    `for i in range(n): S(i); T(i)` -> `for i_s in range(n + by): if i_s < n: S(i_s); if i_s >= by: T(i_s - by)`.
    Legal when: no statement comes before what it needs: always, when all statements of the loop move together.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: A[i] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> i_s = s[B].shift("i", 3)
        >>> print(i_s, i_s.dom.min, i_s.dom.extent)
        i_s 3 8
    """

    stage: StageName
    axis: str
    by: IndexText
    statement: str = ""

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        op = state.looped(self.stage)
        axis = state.leaf(self.stage, self.axis)
        require_plain(state, self.stage, [axis])
        by, made = size_expr(self.by, state), fresh(state, self.stage, f"{axis}_s")
        if not self.statement:
            return made_from(state, self.stage, axis, (made,), ShiftRelation(axis, by, made)), (made,)
        if isinstance(op, ComputeOp):
            raise BadArgument("", f"{self.stage} is a stage of te.compute: all of an iteration moves together")
        stage = state.stages[self.stage]
        below = list(order.statements(order.find(stage.order, axis).body))
        if self.statement not in below:
            raise BadArgument("", f"no statement {self.statement!r} in loop {axis}; {nearest(self.statement, below)}")
        old = state.axis_ranges(self.stage)[axis]
        moved = forward(ShiftRelation(axis, by, made), {axis: old})[made]
        reach = shared_range(old, moved)
        stage = stage.related([self.statement], ShiftRelation(axis, by, made, reach))
        stage = stage.related([n for n in below if n != self.statement], ShiftRelation(axis, ZERO, made, reach))
        tree = order.renamed(stage.order, {axis: made})
        return state.with_stage(replace(stage, order=tree)), (made,)


@primitive("reverse")
@dataclass(frozen=True, slots=True)
class Reverse(Primitive):
    """Run the iterations of an axis backwards.

    Rewrite: `for i in range(n): S(i)` -> `for i_r in range(n): S(n - 1 - i_r)`.
    Legal when: no dependence joins two iterations; updates of one reduction may change places.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: A[i] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> str(s[B].reverse("i"))
        'i_r'
    """

    stage: StageName
    axis: str

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        state.looped(self.stage)
        axis = state.leaf(self.stage, self.axis)
        require_plain(state, self.stage, [axis])
        made = fresh(state, self.stage, f"{axis}_r")
        return made_from(state, self.stage, axis, (made,), ReverseRelation(axis, made)), (made,)
