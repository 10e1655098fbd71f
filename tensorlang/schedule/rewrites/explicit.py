"""Stages of te.compute as ordered statements, and two stages as one: what steps that double or join loops work on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.errors import BadArgument
from tensorlang.ir.expr import Buffer, Expr, Load, Var, cast, rewrite, substitute
from tensorlang.ir.stmt import (
    INDEX,
    Allocate,
    For,
    If,
    LoopKind,
    Seq,
    Stmt,
    Store,
    map_children,
    map_exprs,
    with_buffers,
)
from tensorlang.polyhedral.ordered import sources
from tensorlang.schedule import order
from tensorlang.schedule.axis_range import ZERO, AxisRange, constant, symbolic
from tensorlang.schedule.relation import FuseRelation, PartsRelation, ShiftRelation, made_by, renamed
from tensorlang.schedule.state import ScheduleState, StageState, Strand
from tensorlang.te.axis import Axis, AxisKind
from tensorlang.te.operation import ComputeOp, HybridOp, Operation, Reduce, Tensor, buffers
from tensorlang.te.program import Program, read_buffers, unique

INIT, UPDATE = "S0", "S1"


def explicit(state: ScheduleState, stage: str) -> ScheduleState:
    """Return the state in which a stage of te.compute is a hybrid one: the same loops around its stores."""
    op = state.looped(stage)
    if isinstance(op, HybridOp):
        return state
    _require_explicable(state, op)
    current = state.stages[stage]
    made = HybridOp(op.name, buffers(op), _body(op), (None,), op.tag, op.location, op.attrs, op.axes)
    hybrid = _with_init(state, op, current) if op.reduction is not None else _in_order(current)
    return replace(state, program=state.program.replacing({stage: made})).with_stage(hybrid)


def _require_explicable(state: ScheduleState, op: ComputeOp) -> None:
    stage = state.stages[op.name]
    if op.num_outputs > 1:
        raise BadArgument("", f"{op.name} has {op.num_outputs} outputs that are updated together; this step needs one")
    if stage.attach is not None:
        where = f"{stage.attach.axis} of {stage.attach.stage}"
        raise BadArgument(
            "", f"{op.name} is computed inside {where}; this step is for stages at the root",
            suggested=[f"s[{op.name!r}].compute_root(); ..."],
        )  # fmt: skip
    asked = "tensorize" if stage.tensorized else "set_store_predicate" if stage.predicates else ""
    if asked:
        raise BadArgument("", f"{op.name} has been given to {asked}, which is for stages of te.compute alone")
    known = state.axis_ranges(op.name)
    for relation in stage.relations:
        size = {FuseRelation: "inner", PartsRelation: "parent"}.get(type(relation))
        axis = getattr(relation, size) if size else ""
        if axis and constant(known[axis].extent) is None:
            raise BadArgument("", f"{axis} of {op.name} has a symbolic extent: what was made of it is not affine")


def _body(op: ComputeOp) -> Stmt:
    """The operation as loops over its axes around a store, or around an initialisation and the updates."""
    (buffer,) = buffers(op)
    index = tuple(Var(a.name, INDEX) for a in op.axes)
    reduction = op.reduction
    if reduction is None:
        inner: Stmt = Store(buffer, index, op.body[0])
    else:
        start = Store(buffer, index, cast(reduction.start()[0], op.dtype))
        inner = Seq((start, _updates(op, reduction, buffer, index)))
    return _loops(op.axes, _where(op.where, inner))


def _updates(op: ComputeOp, reduction: Reduce, buffer: Buffer, index: tuple[Expr, ...]) -> Stmt:
    (lhs,), (rhs,) = reduction.reducer.lhs, reduction.reducer.rhs
    env = {lhs.name: Load(buffer, index), rhs.name: reduction.sources[0]}
    update = Store(buffer, index, substitute(reduction.reducer.result[0], env))
    return _loops(op.reduce_axes, _where(() if reduction.where is None else (reduction.where,), update))


def _where(conditions: Sequence[Expr], body: Stmt) -> Stmt:
    for condition in reversed(conditions):
        body = If(condition, body)
    return body


def _loops(axes: Sequence[Axis], body: Stmt) -> Stmt:
    for axis in reversed(axes):
        reach = AxisRange(symbolic(axis.lower), symbolic(axis.extent))
        body = For(Var(axis.name, INDEX), reach.lower, reach.upper, LoopKind.SERIAL, body, axis.name)
    return body


def _in_order(stage: StageState) -> StageState:
    """The loops of a stage without a reduction, around its one store."""
    tree = order.with_statements(stage.order, {stage.name: INIT})
    return replace(stage, order=tree, strands={INIT: replace(stage.strands[stage.name], source=INIT)}, init_at=None)


def _with_init(state: ScheduleState, op: ComputeOp, stage: StageState) -> StageState:
    """The loops of a reduction: the initialisation in its own, just outside the first loop that reduces."""
    kinds, leaves = state.axis_kinds(op.name), stage.leaves
    first = next((k for k, a in enumerate(leaves) if kinds[a] is AxisKind.REDUCE), len(leaves))
    if stage.init_at in leaves:
        first = min(first, leaves.index(stage.init_at))
    inside = [a for a in leaves[first:] if kinds[a] is not AxisKind.REDUCE]
    names = _fresh_names(inside, {*state.axis_ranges(op.name), *state.sizes}, "_init")
    spatial = [r for r in stage.relations if all(kinds[a] is not AxisKind.REDUCE for a in made_by(r)[0])]
    moved = tuple(ShiftRelation(a, ZERO, names[a]) for a in inside)
    start = order.chain(tuple(names[a] for a in inside), (INIT,))
    body = order.chain(leaves[first:], (UPDATE,))
    notes = {names[a]: stage.annotations[a] for a in inside if a in stage.annotations}
    strands = {INIT: Strand(INIT, (*spatial, *moved)), UPDATE: Strand(UPDATE, stage.relations)}
    tree = order.chain(leaves[:first], (*start, *body))
    return replace(stage, order=tree, strands=strands, annotations={**stage.annotations, **notes}, init_at=None)


def _fresh_names(names: Iterable[str], taken: Iterable[str], suffix: str = "") -> dict[str, str]:
    """A name for each of some axes that nobody has yet."""
    used, found = set(taken), dict[str, str]()
    for name in names:
        found[name] = unique(f"{name}{suffix}", used)
        used.add(found[name])
    return found


def joined(state: ScheduleState, stage: str, other: str) -> tuple[ScheduleState, dict[str, str]]:
    """Return the state in which two stages are one hybrid stage, and the new names of axes of `other`.

    It has the name of `stage`; the statements of the operation that comes first in the program come first.
    """
    state = explicit(explicit(state, stage), other)
    taken = {*state.axis_ranges(stage), *state.sizes}
    clashing = [a for a in state.axis_ranges(other) if a in taken]
    names = _fresh_names(clashing, taken | set(state.axis_ranges(other)))
    position = {op.name: k for k, op in enumerate(state.program.ops)}
    parts = [_part(state, stage, {}), _part(state, other, names)]
    first, second = parts if position[stage] < position[other] else reversed(parts)
    op = _joined_op(state.program, stage, first.op, second.op, state.stages)
    program = _with_joined(state.program, op, first.op.name, second.op.name)
    stages = dict(state.stages)
    del stages[other]
    stages[stage] = _joined_stage(stage, first, second)
    for name, s in stages.items():
        if s.attach is not None and s.attach.stage == other:
            stages[name] = replace(
                s, attach=replace(s.attach, stage=stage, axis=names.get(s.attach.axis, s.attach.axis))
            )
    stages = {o.name: stages[o.name] for o in program.ops if o.name in stages}
    return replace(state, program=program, stages=stages), names


@dataclass(frozen=True, slots=True)
class _Part:
    """One of two operations to be joined, and its loops, under names that the other one does not use."""

    op: HybridOp
    stage: StageState


def _part(state: ScheduleState, name: str, names: Mapping[str, str]) -> _Part:
    op, stage = state.program[name], state.stages[name]
    assert isinstance(op, HybridOp)

    def var(node: Expr) -> Expr | None:
        return Var(names[node.name], node.dtype) if isinstance(node, Var) and node.name in names else None

    def visit(stmt: Stmt) -> Stmt:
        inner = map_children(stmt, visit)
        return (
            replace(inner, var=Var(names.get(inner.var.name, inner.var.name), INDEX))
            if isinstance(inner, For)
            else inner
        )

    strands = {
        n: Strand(s.source, tuple(renamed(r, names) for r in s.relations), tuple(rewrite(c, var) for c in s.where))
        for n, s in stage.strands.items()
    }
    moved = replace(
        stage,
        order=order.renamed(stage.order, dict(names)),
        strands=strands,
        annotations={names.get(a, a): note for a, note in stage.annotations.items()},
        pragmas={names.get(a, a): words for a, words in stage.pragmas.items()},
        prefetched=tuple(p.renamed(names) for p in stage.prefetched),
    )
    members = tuple(replace(m, loops={a: names.get(v, v) for a, v in m.loops.items()}) for m in op.members)
    return _Part(replace(op, body=visit(map_exprs(op.body, lambda e: rewrite(e, var))), members=members), moved)


def _joined_stage(name: str, first: _Part, second: _Part) -> StageState:
    """The loops of the first operation, then those of the second, whose statements are numbered after the first's."""
    count = len(sources(first.op))
    numbers = {n: f"S{int(s.source[1:]) + count}" for n, s in second.stage.strands.items()}
    names = {n: numbers[n] + n.removeprefix(s.source) for n, s in second.stage.strands.items()}
    later = {names[n]: replace(s, source=numbers[n]) for n, s in second.stage.strands.items()}
    tree = (*first.stage.order, *order.with_statements(second.stage.order, names))
    a, b = first.stage, second.stage
    return StageState(
        name,
        tree,
        {**a.strands, **later},
        {**a.annotations, **b.annotations},
        storage=a.storage.joined(b.storage) if first.op.name == name else b.storage.joined(a.storage),
        launched=(*a.launched, *b.launched),
        pragmas={**a.pragmas, **b.pragmas},
        prefetched=(*a.prefetched, *b.prefetched),
        atomic=a.atomic or b.atomic,
    )


def _joined_op(
    program: Program, name: str, first: HybridOp, second: HybridOp, stages: Mapping[str, StageState]
) -> HybridOp:
    """The two operations as one. An array that only these two need becomes a local one."""
    updated = {old.name: new for old, new in zip(second.updates, second.outputs, strict=True) if old is not None}
    wanted = {n for n in program.buffers if program.is_output(n)}
    wanted |= {n for op in program.ops if op.name not in (first.name, second.name) for n in read_buffers(op)}
    _require_joinable(first, second, updated, wanted)
    kept: dict[Buffer, Buffer | Tensor | None] = {}
    local: list[Buffer] = []
    before = dict(zip((b.name for b in first.outputs), first.updates, strict=True))
    for op in (first, second):
        for buffer, old in zip(op.outputs, op.updates, strict=True):
            if op is first and buffer.name in updated:
                continue  # what the second makes of it has its place
            origin = before.get(old.name, old) if old is not None else None
            if buffer.name in wanted or origin is not None:
                kept[buffer] = origin
            else:
                local.append(replace(buffer, scope=stages[op.name].storage.scope))
    places = {**updated, **{b.name: b for b in local}}
    body = with_buffers(Seq((first.body, second.body)), lambda b: places.get(b.name, b))
    for buffer in reversed(local):
        body = Allocate(buffer, body)
    own = first if first.name == name else second
    members = (*first.members, *second.members)
    return replace(own, name=name, outputs=tuple(kept), body=body, updates=tuple(kept.values()), members=members)


def _require_joinable(first: HybridOp, second: HybridOp, updated: Mapping[str, Buffer], wanted: set[str]) -> None:
    """Refuse to join around an array whose contents between the two are needed elsewhere."""
    read = read_buffers(second)
    late = next((b.name for b in first.updates if b is not None and b.name in read), None)
    if late is not None:
        raise BadArgument("", f"{second.name} reads {late}, which {first.name} updates in place")
    seen = next((b.name for b in first.outputs if b.name in updated and b.name in wanted), None)
    if seen is not None:
        raise BadArgument("", f"{second.name} updates {seen} in place, and others read it")


def _with_joined(program: Program, op: HybridOp, first: str, second: str) -> Program:
    """The program with one operation in place of two: what needs the first is computed after it."""
    names = [o.name for o in program.ops]
    low, high = names.index(first), names.index(second)
    moved: set[str] = {first}
    early: list[Operation] = []
    late: list[Operation] = []
    for between in program.ops[low + 1 : high]:
        needs = {program.producer[b] for b in read_buffers(between)}
        if moved & needs:
            moved.add(between.name)
        (late if moved & needs else early).append(between)
    blocked = {program.producer[b] for b in read_buffers(program[second])} & (moved - {first})
    if blocked:
        raise BadArgument("", f"{second} needs {min(blocked)}, which is computed from {first}: it stands between them")
    ops = (*program.ops[:low], *early, op, *late, *program.ops[high + 1 :])
    given = {b.name for b in op.outputs if program.is_output(b.name)}
    if not given:
        return replace(program, ops=ops)
    outputs = tuple(dict.fromkeys(op.name if o in (first, second) else o for o in program.outputs))
    inside = {b.name for b in op.outputs} - given
    gone = {b.name for b in (*buffers(program[first]), *buffers(program[second]))}
    return Program(ops, outputs, (program.hidden - gone) | inside)
