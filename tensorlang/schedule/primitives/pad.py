"""Stages that reach beyond their last element, so that no tile is cut short: pad."""

from __future__ import annotations

from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.errors import BadArgument, DefinitionError
from tensorlang.ir.expr import Const, Expr, Load, Select, binary, const, rewrite, select, variables
from tensorlang.ir.simplify import simplify
from tensorlang.polyhedral.extract import check_bounds, unproven
from tensorlang.schedule.primitive import Outputs, Primitive, StageName, positive, primitive
from tensorlang.schedule.primitives.placement import require_internal
from tensorlang.schedule.primitives.storage import in_program_order
from tensorlang.schedule.state import ScheduleState
from tensorlang.te.axis import Axis
from tensorlang.te.operation import ComputeOp, Operation, buffers


@primitive("pad")
@dataclass(frozen=True, slots=True)
class Pad(Primitive):
    """Extend an axis of an intermediate stage to a multiple of `factor`, so that no tile of it is cut short.

    Beyond its last element, a stage without a reduction holds zeros, and a reduction is computed as elsewhere, from
    what was padded before. Nothing that the program asks for reads these elements: they save tests in inner loops.
    Rewrite: `for i in range(10): T[i] = A[i]` -> `for i in range(16): T[i] = A[i] if i < 10 else 0`, for a factor of 8.
    Legal when: the stage is no output, its loops are still as declared, and all that it reads there exists.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((10,), name="A")
        >>> B = te.compute((10,), lambda i: A[i] * 2, name="B")
        >>> s = te.create_schedule(B.op)
        >>> T = s.cache_read(A, "local", [B])
        >>> s[T].pad(T.op.axis[0], 8)
        >>> str(s[T].op.axis[0].extent)
        '16'
    """

    stage: StageName
    axis: str
    factor: int

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        op = state.compute_op(self.stage)
        require_internal(state, self.stage, "pad", self.text())
        factor = positive(self.factor, state, "factor")
        stage = state.stages[self.stage]
        if stage.relations or stage.annotations or state.attached_to(self.stage):
            raise BadArgument("", f"pad must come before other steps on {self.stage}")
        axis = next((a for a in op.axes if a.name == self.axis), None)
        if axis is None:
            known = ", ".join(a.name for a in op.axes)
            raise BadArgument("", f"{self.axis} is no axis of the output of {self.stage}; there are {known}")
        if any(axis.name in variables(w) for w in op.where):
            raise BadArgument("", f"{self.stage} leaves some of {axis.name} out; pad it before transform_layout")
        if isinstance(axis.extent, Const) and int(axis.extent.value) % factor == 0:
            return state, ()
        padded = _padded(op, axis, factor)
        changed: dict[str, Operation] = {self.stage: padded}
        for user in state.program.consumers[self.stage]:
            consumer = state.program[user]
            if not isinstance(consumer, ComputeOp):
                raise BadArgument("", f"{user} is an extern stage and needs {self.stage} in its own shape")
            changed[user] = _reading(consumer, padded)
        program = state.program.replacing(changed)
        try:
            check_bounds(program)
        except DefinitionError as error:
            why = f"{self.stage} has nothing to read there: {error.message}"
            raise BadArgument("", why, suggested=["cache_read what it reads, and pad that first"]) from None
        if op.reduction is not None and unproven(op, state.sizes):
            raise BadArgument("", f"{self.stage} reads at places that are known at run time only")
        return replace(state, program=program, stages=in_program_order(program, state.stages)), ()


def _padded(op: ComputeOp, axis: Axis, factor: int) -> ComputeOp:
    """The operation over whole tiles of an axis."""
    tiles = binary("floordiv", axis.extent + (factor - 1), factor)
    longer = replace(axis, extent=simplify(tiles * factor))
    axes = tuple(longer if a is axis else a for a in op.axes)
    body = op.body
    if op.reduction is None:
        present = binary("lt", axis, axis.lower + axis.extent)
        body = tuple(_or_zero(present, value) for value in op.body)
    return replace(op, axes=axes, body=body)


def _or_zero(present: Expr, value: Expr) -> Expr:
    """A value, or zero; what was padded before has one condition, not one inside the other."""
    if isinstance(value, Select) and isinstance(value.orelse, Const) and value.orelse.value == 0:
        return select(binary("and", value.cond, present), value.then, value.orelse)
    return select(present, value, const(0, value.dtype))


def _reading(reader: ComputeOp, padded: ComputeOp) -> ComputeOp:
    """A reader of the shorter array as one of the longer."""
    arrays = {b.name: b for b in buffers(padded)}

    def rule(node: Expr) -> Expr | None:
        if isinstance(node, Load) and node.buffer.name in arrays:
            return Load(arrays[node.buffer.name], node.index)
        return None

    return replace(reader, body=tuple(rewrite(value, rule) for value in reader.body))
