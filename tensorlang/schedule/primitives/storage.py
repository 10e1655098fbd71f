"""Copies in faster memory: cache_read, cache_write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.errors import BadArgument
from tensorlang.ir.expr import Expr, Load, rewrite, substitute
from tensorlang.ir.stmt import map_exprs
from tensorlang.schedule.names import nearest
from tensorlang.schedule.primitive import Outputs, Primitive, primitive
from tensorlang.schedule.primitives.placement import require_scope
from tensorlang.schedule.relation import made_by
from tensorlang.schedule.state import ScheduleState, StageState, initial_stage
from tensorlang.schedule.storage import Storage
from tensorlang.te.axis import Axis, AxisKind
from tensorlang.te.operation import ComputeOp, ExternOp, HybridOp, Operation, buffers
from tensorlang.te.program import Program


def in_program_order(program: Program, stages: Mapping[str, StageState]) -> dict[str, StageState]:
    """Stages of a rewritten program, new ones with their default loops."""
    found = {}
    for op in program.ops:
        if isinstance(op, ComputeOp | ExternOp | HybridOp):
            found[op.name] = stages.get(op.name) or initial_stage(op)
    return found


def _redirect(body: Expr, names: Mapping[str, Operation]) -> Expr:
    """Replace loads of buffers by loads of the (only) buffer of other operations, at the same index."""

    def rule(node: Expr) -> Expr | None:
        if isinstance(node, Load) and node.buffer.name in names:
            return Load(buffers(names[node.buffer.name])[0], node.index)
        return None

    return rewrite(body, rule)


def _reading(op: ComputeOp | HybridOp, names: Mapping[str, Operation]) -> Operation:
    """An operation that reads other operations in place of buffers."""
    if isinstance(op, HybridOp):
        return replace(op, body=map_exprs(op.body, lambda value: _redirect(value, names)))
    return replace(op, body=tuple(_redirect(value, names) for value in op.body))


def _filled(maker: Operation, axes: Sequence[Axis]) -> tuple[Expr, ...]:
    """The conditions under which an operation makes an element, over other axes; a layout may have unused ones."""
    if not isinstance(maker, ComputeOp):
        return ()
    at = {old.name: new.as_expr() for old, new in zip(maker.axes, axes, strict=True)}
    return tuple(substitute(condition, at) for condition in maker.where)


def _readers(program: Program, tensor: str) -> str:
    """Who reads a tensor."""
    found = program.consumers[program.producer[tensor]]
    return f"who does: {', '.join(found)}" if found else "nobody does"


@primitive("cache_read")
@dataclass(frozen=True, slots=True)
class CacheRead(Primitive):
    """Read a tensor through a copy in another memory scope.

    Rewrite: `C[i] = f(A[i])` -> `A.local[i] = A[i]; C[i] = f(A.local[i])`. Place the copy with compute_at.
    Legal when: every reader named reads the tensor.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((100,), name="A")
        >>> C = te.compute((100,), lambda i: A[i] + 1, name="C")
        >>> s = te.create_schedule(C.op)
        >>> s.cache_read(A, "local", [C]).name
        'A.local'
    """

    tensor: str
    scope: str
    readers: tuple[str, ...]

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        require_scope(self.scope)
        program = state.program
        if self.tensor not in program.buffers:
            raise BadArgument("", f"no tensor {self.tensor!r}; {nearest(self.tensor, program.buffers)}")
        source = program.buffers[self.tensor]
        axes = tuple(Axis(f"ax{k}", extent) for k, extent in enumerate(source.shape))
        name = program.fresh_name(f"{self.tensor}.{self.scope}")
        where = _filled(program[program.producer[self.tensor]], axes)
        copy = ComputeOp(name, axes, (), (Load(source, tuple(a.as_expr() for a in axes)),), where)
        if not self.readers:
            raise BadArgument("", "cache_read needs at least one reader")
        changed: dict[str, Operation] = {}
        for reader in self.readers:
            op = state.looped(reader)
            if reader not in program.consumers[program.producer[self.tensor]]:
                raise BadArgument("", f"{reader} does not read {self.tensor}; {_readers(program, self.tensor)}")
            changed[reader] = _reading(op, {self.tensor: copy})
        first = next(op.name for op in program.ops if op.name in changed)
        made = program.replacing(changed, {first: [copy]})
        stages = in_program_order(made, state.stages)
        stages[name] = replace(stages[name], storage=Storage(self.scope))
        return replace(state, program=made, stages=stages), (name,)


def _summing(fresh: StageState, stage: StageState, summed: set[str]) -> StageState:
    """The stage of a computation that is copied afterwards: the loops of its reduction are those of `stage`."""
    axes = tuple(axis for axis in fresh.leaves if axis not in summed)
    made = fresh.chained(
        (*axes, *(axis for axis in stage.leaves if axis in summed)),
        tuple(r for r in stage.relations if summed.issuperset(made_by(r)[0])),
    )
    notes = {axis: note for axis, note in stage.annotations.items() if axis in summed}
    return replace(made, annotations=notes, pragmas={a: n for a, n in stage.pragmas.items() if a in summed})


@primitive("cache_write")
@dataclass(frozen=True, slots=True)
class CacheWrite(Primitive):
    """Compute a stage in another memory scope, and copy it to its place.

    Rewrite: `C[i] = f(i)` -> `C.local[i] = f(i); C[i] = C.local[i]`. Place the computation with compute_at.
    The loops of a reduction stay as they are, around the computation.
    Legal when: nothing is computed inside the stage, and no axis is made of a reduce axis and another.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((100,), name="A")
        >>> C = te.compute((100,), lambda i: A[i] + 1, name="C")
        >>> s = te.create_schedule(C.op)
        >>> s.cache_write(C, "local").name
        'C.local'
    """

    stage: str
    scope: str

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        require_scope(self.scope)
        op = state.compute_op(self.stage)
        stage = state.stages[self.stage]
        kinds = state.axis_kinds(self.stage)
        summed = {axis for axis, kind in kinds.items() if kind is AxisKind.REDUCE}
        mixed = [new[0] for old, new in map(made_by, stage.relations) if len({axis in summed for axis in old}) > 1]
        held = [s.name for s in state.attached_to(self.stage)]
        if mixed or held:
            what = f"{held[0]} is computed inside it" if held else f"{mixed[0]} is made of a reduce axis and another"
            raise BadArgument("", f"cache_write must come first: {what}", suggested=["cache_write before other steps"])
        name = state.program.fresh_name(f"{self.stage}.{self.scope}")
        inner = replace(op, name=name)
        index = tuple(a.as_expr() for a in op.axes)
        copy = replace(op, reduce_axes=(), body=tuple(Load(b, index) for b in buffers(inner)))
        program = state.program.replacing({self.stage: copy}, {self.stage: [inner]})
        copied = stage.chained(
            tuple(a for a in stage.leaves if a not in summed),
            tuple(r for r in stage.relations if summed.isdisjoint(made_by(r)[0])),
        )
        copied = replace(copied, annotations={a: n for a, n in stage.annotations.items() if a not in summed})
        stages = in_program_order(program, {**state.stages, self.stage: copied})
        stages[name] = replace(_summing(stages[name], stage, summed), storage=Storage(self.scope))
        return replace(state, program=program, stages=stages), (name,)
