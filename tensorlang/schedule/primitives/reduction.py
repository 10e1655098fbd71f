"""Reductions in parts: rfactor, decompose_reduction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial, reduce

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import BadArgument
from tensorlang.ir.expr import Expr, Load, Select, Var, binary, select, substitute, walk
from tensorlang.schedule import order
from tensorlang.schedule.axis_range import simple
from tensorlang.schedule.primitive import Outputs, Primitive, StageName, named, primitive
from tensorlang.schedule.primitives.storage import in_program_order
from tensorlang.schedule.relation import Relation, backward, made_by
from tensorlang.schedule.state import ScheduleState
from tensorlang.te.axis import Axis, AxisKind
from tensorlang.te.operation import ComputeOp, Reduce, buffers
from tensorlang.te.program import unique


@primitive("rfactor")
@dataclass(frozen=True, slots=True)
class RFactor(Primitive):
    """Factor a reduction: partial results along one of its axes, then a reduction of those.

    Rewrite: `C[i] += f(i, k_o, k_i)` -> `C.rf[k_i, i] += f(i, k_o, k_i); C[i] += C.rf[k_i, i]`. The partial
    results have no dependence along the factor axis: it can be parallel or vectorised there.
    Legal when: the axis is a reduce axis; the combiner is associative and commutative.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((8, 100), name="A")
        >>> k = te.reduce_axis((0, 100), "k")
        >>> B = te.compute((8,), lambda i: te.sum(A[i, k], axis=k), name="B")
        >>> s = te.create_schedule(B.op)
        >>> k_o, k_i = s[B].split(k, factor=16)
        >>> s.rfactor(B, k_i).name
        'B.rf'
    """

    stage: str
    axis: str
    factor_axis: int = named()

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        op = state.compute_op(self.stage)
        axis = state.leaf(self.stage, self.axis)
        first = op.reduction
        kinds = state.axis_kinds(self.stage)
        if first is None or kinds[axis] is not AxisKind.REDUCE:
            reduced = ", ".join(a for a, kind in kinds.items() if kind is AxisKind.REDUCE) or "none"
            why = f"rfactor needs a reduce axis, and {axis} of {self.stage} is spatial; reduce axes: {reduced}"
            raise BadArgument("", why)
        if state.strict and any(dtypes.info(d).is_float for d in op.dtypes):
            raise BadArgument(
                "",
                f"rfactor adds up partial results of {self.stage} first, another order of its floating-point updates, "
                "and the schedule is strict",
                suggested=["te.create_schedule(..., strict=False)"],
            )
        place = self.factor_axis
        if isinstance(place, bool) or not isinstance(place, int) or not 0 <= place <= len(op.axes):
            raise BadArgument("", f"factor_axis must be a whole number between 0 and {len(op.axes)}, got {place!r}")
        if state.attached_to(self.stage):
            raise BadArgument(
                "", f"{state.attached_to(self.stage)[0].name} is computed inside {self.stage}; rfactor first"
            )
        parts = self._partial(state, op, axis, first)
        final = self._final(op, axis, parts, first, state.sizes)
        program = state.program.replacing({self.stage: final}, {self.stage: [parts]})
        stage = state.stages[self.stage]
        spatial = tuple(a for a in stage.leaves if kinds[a] is not AxisKind.REDUCE)
        relations = tuple(r for r in stage.relations if _is_spatial(r, kinds))
        notes = {a: n for a, n in stage.annotations.items() if a in spatial}
        rest = replace(stage.chained((*spatial, final.reduce_axes[0].name), relations), annotations=notes, init_at=None)
        stages = in_program_order(program, {**state.stages, self.stage: rest})
        changed = (self.stage,) if any(dtypes.info(d).is_float for d in op.dtypes) else ()
        made = replace(state, program=program, stages=stages, reassociated=(*state.reassociated, *changed))
        return made, (parts.name,)

    def _partial(self, state: ScheduleState, op: ComputeOp, axis: str, first: Reduce) -> ComputeOp:
        """The stage of partial results: `axis` has become spatial."""
        stage, kinds, known = state.stages[self.stage], state.axis_kinds(self.stage), state.axis_ranges(self.stage)
        reduce_relations = [r for r in stage.relations if not _is_spatial(r, kinds)]
        leaves = [a for a in stage.leaves if kinds[a] is AxisKind.REDUCE]
        at: dict[str, Expr] = {a: Var(a) for a in leaves}
        at[axis] = simple(binary("add", at[axis], known[axis].lower))  # the axis of partial results starts at 0
        values, guards = backward(reduce_relations, known, at)
        env = {a.name: values[a.name] for a in op.reduce_axes}
        rest = tuple(Axis(a, known[a].extent, AxisKind.REDUCE, known[a].lower) for a in leaves if a != axis)
        where = _within(guards, None if first.where is None else substitute(first.where, env))
        taken = {a.name for a in op.axes} | {a.name for a in rest}
        lane = Axis(unique(axis, taken), known[axis].extent)
        spatial = (*op.axes[: self.factor_axis], lane, *op.axes[self.factor_axis :])
        sources = tuple(substitute(s, env) for s in first.sources)
        body = tuple(_partial_body(first, sources, rest, where, k) for k in range(op.num_outputs))
        name = state.program.fresh_name(f"{op.name}.rf")
        return replace(op, name=name, axes=spatial, reduce_axes=rest, body=body)

    def _final(self, op: ComputeOp, axis: str, parts: ComputeOp, first: Reduce, sizes: frozenset[str]) -> ComputeOp:
        name = unique(f"{axis}_v", {a.name for a in op.axes} | sizes)
        lane = Axis(name, parts.axes[self.factor_axis].extent, AxisKind.REDUCE)
        spatial = tuple(a.as_expr() for a in op.axes)
        index = (*spatial[: self.factor_axis], lane.as_expr(), *spatial[self.factor_axis :])
        sources = tuple(Load(b, index) for b in buffers(parts))
        body = tuple(
            Reduce(first.reducer, sources, (lane,), None, k, op.dtypes[k], first.init) for k in range(op.num_outputs)
        )
        return replace(op, reduce_axes=(lane,), body=body)


@primitive("decompose_reduction")
@dataclass(frozen=True, slots=True)
class DecomposeReduction(Primitive):
    """Initialise a reduction in loops of its own, just before the loop `axis`.

    Rewrite: `for i: for j: C[i, j] = 0; for k: C[i, j] += f(i, j, k)` at `i` ->
    `for i: for j: C[i, j] = 0`, `for i: for j: for k: C[i, j] += f(i, j, k)`.
    Legal when: the axis is not inside a reduce axis.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((8, 100), name="A")
        >>> k = te.reduce_axis((0, 100), "k")
        >>> B = te.compute((8,), lambda i: te.sum(A[i, k], axis=k), name="B")
        >>> s = te.create_schedule(B.op)
        >>> s[B].decompose_reduction("i")
    """

    stage: StageName
    axis: str

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        op = state.compute_op(self.stage)
        axis = state.leaf(self.stage, self.axis)
        if op.reduction is None:
            raise BadArgument("", f"{self.stage} has no reduction")
        stage, kinds = state.stages[self.stage], state.axis_kinds(self.stage)
        first = next((a for a in stage.leaves if kinds[a] is AxisKind.REDUCE), axis)
        if stage.leaves.index(axis) > stage.leaves.index(first):
            raise BadArgument(
                "",
                f"{axis} is inside the reduce axis {first}: the updates would start over in each of its iterations",
                suggested=[DecomposeReduction(self.stage, a).text() for a in order.path(stage.order, first)],
            )
        return state.with_stage(replace(stage, init_at=axis)), ()


def _within(guards: Sequence[Expr], where: Expr | None) -> Expr | None:
    """The guards and a condition, which reads memory only where they hold."""
    if not guards:
        return where
    inside = reduce(partial(binary, "and"), guards)
    if where is None:
        return inside
    if any(isinstance(node, Load) for node in walk(where)):
        where = select(inside, where, False)
    return binary("and", inside, where)


def _partial_body(first: Reduce, sources: tuple[Expr, ...], rest: tuple[Axis, ...], where: Expr | None, k: int) -> Expr:
    if rest:
        return Reduce(first.reducer, sources, rest, where, k, sources[k].dtype)
    if where is None:
        return sources[k]
    return Select(where, sources[k], first.reducer.identity[k], sources[k].dtype)


def _is_spatial(relation: Relation, kinds: dict[str, AxisKind]) -> bool:
    return all(kinds[axis] is not AxisKind.REDUCE for axis in made_by(relation)[0])
