"""compute_at inside a scan, as a plan of named primitives: the loops of a stage become those of its consumer."""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang.errors import BadArgument
from tensorlang.ir.expr import Expr, Load, Var, walk
from tensorlang.ir.index import to_index
from tensorlang.ir.stmt import Store
from tensorlang.ir.stmt import walk as walk_stmt
from tensorlang.schedule import order
from tensorlang.schedule.axis_range import ZERO
from tensorlang.schedule.members import leaves_of
from tensorlang.schedule.primitive import Primitive
from tensorlang.schedule.primitives.distribute import FuseWith
from tensorlang.schedule.primitives.loops import Reorder, Split
from tensorlang.schedule.relation import PartsRelation, Relation, ShiftRelation, SplitRelation, made_by
from tensorlang.schedule.state import ScheduleState
from tensorlang.te.operation import HybridOp, Member


def plan_gather(state: ScheduleState, stage: str, producer: Member, consumer: Member, axis: str) -> list[Primitive]:
    """Plan to compute a member inside the loop `axis` of another one of the same operation.

    The loops down to `axis` must run over elements that the consumer reads where it is: the producer is split the same
    way, and every pair of loops is fused.
    """
    op = state.program[stage]
    assert isinstance(op, HybridOp)
    state.leaf(stage, axis)
    if axis not in leaves_of(state, stage, consumer):
        raise BadArgument("", f"{axis} is no loop of {consumer.op.name}")
    path = order.path(state.stages[stage].order, axis)
    wanted = [a for a in path if a not in leaves_of(state, stage, producer)]
    same = _aligned(op, producer, consumer)
    steps: list[Primitive] = []
    for relation in _making(_relations(state, stage, consumer), wanted):
        (old,), made = made_by(relation)
        if isinstance(relation, ShiftRelation) and relation.by is ZERO and old in same:
            same[made[0]] = same[old]
            continue
        if not isinstance(relation, SplitRelation | PartsRelation) or old not in same:
            break
        factor = relation.factor if isinstance(relation, SplitRelation) else None
        parts = relation.parts if isinstance(relation, PartsRelation) else None
        step = Split(stage, same[old], factor, parts, relation.tail)
        state, (outer, inner) = step.apply(state)
        same |= {made[0]: outer, made[1]: inner}
        steps.append(step)
    missing = [a for a in wanted if a not in same]
    if missing:
        raise BadArgument(
            "",
            f"loop {missing[0]} of {consumer.op.name} does not run over elements of {producer.op.name} one by one",
            suggested=["fuse_with, after loops of both have been brought to the same form"],
        )
    own = [a for a in leaves_of(state, stage, producer) if a not in path]
    return [*steps, *_together(own, stage, [(same[a], a) for a in wanted])]


def _aligned(op: HybridOp, producer: Member, consumer: Member) -> dict[str, str]:
    """The loops of a consumer by which it reads a dimension of the producer's arrays -> the producer's loop."""
    stores = [s for s in walk_stmt(op.body) if isinstance(s, Store)]
    written = {s.buffer.name: _variables(s.index) for s in stores if s.buffer.name in producer.arrays}
    found: dict[str, set[str]] = {}
    for store in (s for s in stores if s.buffer.name in consumer.arrays):
        for load in (n for n in walk(store.value) if isinstance(n, Load) and n.buffer.name in written):
            for read, own in zip(_variables(load.index), written[load.buffer.name], strict=True):
                found.setdefault(own, set()).add(read)
    return {next(iter(reads)): own for own, reads in found.items() if own and len(reads) == 1 and "" not in reads}


def _variables(index: Sequence[Expr]) -> list[str]:
    """The variable that each index is; empty where it is none."""
    exprs = [to_index(i) for i in index]
    return [e.name if isinstance(e, Var) else "" for e in exprs]


def _relations(state: ScheduleState, stage: str, member: Member) -> tuple[Relation, ...]:
    """How the loops of a member were made."""
    strands = state.stages[stage].strands
    inside = set(leaves_of(state, stage, member))
    tree = state.stages[stage].order
    return next(s.relations for n, s in strands.items() if set(order.around(tree, n)) == inside)


def _making(relations: Sequence[Relation], axes: Sequence[str]) -> list[Relation]:
    """The relations that make some axes, first ones first."""
    needed, chosen = set(axes), list[Relation]()
    for relation in reversed(relations):
        old, made = made_by(relation)
        if needed & set(made):
            needed |= set(old)
            chosen.append(relation)
    return chosen[::-1]


def _together(own: Sequence[str], stage: str, pairs: Sequence[tuple[str, str]]) -> list[Primitive]:
    """The steps that bring the producer's loops of the pairs outside, and fuse each with its consumer's.

    `own` are the producer's loops below those that it shares with its consumer already.
    """
    first = [mine for mine, _ in pairs]
    moved = own[: max((own.index(a) for a in first), default=-1) + 1]
    wanted = (*first, *(a for a in moved if a not in first))
    steps: list[Primitive] = [] if tuple(moved) == wanted else [Reorder(stage, wanted)]
    return [*steps, *(FuseWith(stage, mine, other, "") for mine, other in pairs)]
