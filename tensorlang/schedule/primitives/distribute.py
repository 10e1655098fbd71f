"""Loops over several statements, taken apart and put together: fission, fuse_with."""

from __future__ import annotations

from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.errors import BadArgument
from tensorlang.schedule import order
from tensorlang.schedule.axis_range import ZERO, AxisRange
from tensorlang.schedule.names import nearest
from tensorlang.schedule.primitive import Outputs, Primitive, StageName, primitive
from tensorlang.schedule.primitives.loops import fresh, require_plain
from tensorlang.schedule.primitives.shift import shared_range
from tensorlang.schedule.relation import ShiftRelation
from tensorlang.schedule.rewrites.explicit import joined
from tensorlang.schedule.state import ScheduleState, StageState
from tensorlang.te.operation import ComputeOp


@primitive("fission")
@dataclass(frozen=True, slots=True)
class Fission(Primitive):
    """Run the children of a loop (inner loops and statements) in loops of their own, one after the other.

    Rewrite: `for i: S(i); T(i)` -> `for i: S(i)`, `for i_1: T(i_1)`; in two parts, with `after` the last child of the
    first. The first part keeps the axis.
    Legal when: no statement needs what a later child computes in an earlier iteration.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: A[i] + 1, name="B")
        >>> C = te.compute((8,), lambda i: B[i] * 2, name="C")
        >>> s = te.create_schedule(C.op)
        >>> i = s[C].fuse_with("i", stage=B)
        >>> [str(a) for a in s[C].fission(i)]
        ['i_fused', 'i_fused_1']
    """

    stage: StageName
    axis: str
    after: str = ""

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        op = state.looped(self.stage)
        axis = state.leaf(self.stage, self.axis)
        require_plain(state, self.stage, [axis])
        stage = state.stages[self.stage]
        if isinstance(op, ComputeOp):
            repair = f"s[{self.stage!r}].decompose_reduction({axis!r})"
            raise BadArgument(
                "",
                f"{self.stage} is a stage of te.compute: loop {axis} holds one statement",
                suggested=[repair] if op.reduction is not None else [],
            )
        body = order.find(stage.order, axis).body
        if len(body) < 2:
            raise BadArgument("", f"loop {axis} of {self.stage} holds only {_child(body[0])}")
        parts = self._parts(axis, body)
        made = [axis]
        for part in parts[1:]:
            made.append(fresh(state, self.stage, axis))
            stage = stage.related(order.statements(part), ShiftRelation(axis, ZERO, made[-1]))
            state = state.with_stage(stage)
        nodes = tuple(order.LoopNode(name, part) for name, part in zip(made, parts, strict=True))
        tree = order.rebuild(stage.order, axis, lambda _: nodes)
        return state.with_stage(replace(stage, order=tree)), tuple(made)

    def _parts(self, axis: str, body: order.Order) -> list[order.Order]:
        if not self.after:
            return [(child,) for child in body]
        children = [_child(node) for node in body]
        if self.after not in children:
            raise BadArgument("", f"no child {self.after!r} in loop {axis}; {nearest(self.after, children)}")
        k = children.index(self.after) + 1
        if k == len(body):
            raise BadArgument("", f"nothing stands after {self.after} in loop {axis}")
        return [body[:k], body[k:]]


def _child(node: order.Node) -> str:
    return node if isinstance(node, str) else node.axis


@primitive("fuse_with")
@dataclass(frozen=True, slots=True)
class FuseWith(Primitive):
    """Run two loops as one: in each iteration the body of the first, then that of the second.

    Rewrite: `for i in range(n): S(i)`, `for j in range(m): T(j)` -> `for i_fused in range(max(n, m)): S; T`, each
    where its own range allows. The loops stand in the same body of one hybrid stage; the new one, where the first was.
    With `stage`, they are the outermost loops of two stages, which become one hybrid stage of the name of `stage`:
    all of its statements are scheduled there, axes of the other whose names are taken get new ones, and an array that
    nobody else needs becomes a local one of it.
    Legal when: no statement comes before what it needs.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: A[i] + 1, name="B")
        >>> C = te.compute((8,), lambda i: B[i] * 2, name="C")
        >>> s = te.create_schedule(C.op)
        >>> str(s[C].fuse_with("i", stage=B))
        'i_fused'
    """

    stage: StageName
    axis: str
    other: str
    second: str

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        axis, other = self.axis, self.other
        state.leaf(self.stage, axis)
        if self.second:
            state, other = self._joined(state)
        elif isinstance(state.looped(self.stage), ComputeOp):
            raise BadArgument("", f"{self.stage} is a stage of te.compute: it has no loops side by side")
        state.leaf(self.stage, other)
        require_plain(state, self.stage, [axis, other])
        stage = state.stages[self.stage]
        around = order.siblings(stage.order, axis)
        if axis == other:
            raise BadArgument("", "fuse_with needs two loops: name the other one, or its stage (stage=...)")
        if not any(isinstance(n, order.LoopNode) and n.axis == other for n in around):
            raise BadArgument(
                "",
                f"{axis} and {other} are not two loops of the same body",
                suggested=[f"fuse_with the loops around them first, if they are {axis} and {other} of two nests"],
            )
        known = state.axis_ranges(self.stage)
        made = fresh(state, self.stage, f"{axis.removesuffix('_fused')}_fused")
        return state.with_stage(_merged(stage, axis, other, made, shared_range(known[axis], known[other]))), (made,)

    def _joined(self, state: ScheduleState) -> tuple[ScheduleState, str]:
        if self.second == self.stage:
            raise BadArgument("", f"{self.stage} is one stage: name two of its loops instead")
        state.leaf(self.second, self.other)
        for stage, axis in ((self.stage, self.axis), (self.second, self.other)):
            first = [node.axis for node in order.loops_at(state.stages[stage].order)]
            if axis not in first:
                raise BadArgument("", f"{axis} is not an outermost loop of {stage}; there are {', '.join(first)}")
        state, names = joined(state, self.stage, self.second)
        return state, names.get(self.other, self.other)

    def text(self) -> str:
        where = f", stage=s[{self.second!r}]" if self.second else ""
        return f"s[{self.stage!r}].fuse_with({self.axis!r}, {self.other!r}{where})"


def _merged(stage: StageState, axis: str, other: str, made: str, reach: AxisRange) -> StageState:
    """The stage with one loop in place of two: where the one that comes first was."""
    bodies = {}
    for name in (axis, other):
        bodies[name] = order.find(stage.order, name).body
        stage = stage.related(order.statements(bodies[name]), ShiftRelation(name, ZERO, made, reach))
    first, second = (a for a in stage.leaves if a in bodies)
    tree = order.rebuild(stage.order, second, lambda _: ())
    node = order.LoopNode(made, (*bodies[first], *bodies[second]))
    return replace(stage, order=order.rebuild(tree, first, lambda _: (node,)))
