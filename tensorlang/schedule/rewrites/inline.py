"""compute_inline and set_scope of an operation that runs inside a hybrid one, and makes local arrays there."""

from __future__ import annotations

from dataclasses import replace

from tensorlang.errors import BadArgument
from tensorlang.ir.construct import block
from tensorlang.ir.expr import Expr, Load, Var, rewrite, substitute, walk
from tensorlang.ir.index import to_index
from tensorlang.ir.stmt import (
    Allocate,
    For,
    If,
    Seq,
    Stmt,
    Store,
    children,
    map_children,
    map_exprs,
    stmt_exprs,
    with_buffers,
)
from tensorlang.ir.stmt import walk as walk_stmt
from tensorlang.ir.traverse import excess, operations, too_many
from tensorlang.polyhedral.extract import unproven_among
from tensorlang.polyhedral.ordered import sources
from tensorlang.schedule import order
from tensorlang.schedule.members import member_of
from tensorlang.schedule.order import LoopNode, Order
from tensorlang.schedule.state import ScheduleState, Strand
from tensorlang.te.operation import ComputeOp, HybridOp, Member, Operation, buffers


def inline_member(state: ScheduleState, stage: str, name: str) -> ScheduleState:
    """Return the state in which every load of a member's arrays has become the value that the member stores there.

    A member stores each element once, from elements that never change again: a later read gives the same value,
    unless they are of an array that every iteration of a loop has anew.
    """
    op = state.program[stage]
    member = member_of(op, name)
    assert isinstance(op, HybridOp) and member is not None
    stores = _stores(op, member)
    _check(state, op, member)
    _check_iterations(op, member, stores)

    def value(node: Expr) -> Expr | None:
        store = stores.get(node.buffer.name) if isinstance(node, Load) else None
        if store is None or not isinstance(node, Load):
            return None
        at = {v.name: to_index(i) for v, i in zip(store.index, node.index, strict=True) if isinstance(v, Var)}
        return substitute(store.value, at)

    def inlined(expr: Expr) -> Expr:
        return within_bounds(op, name, (rewrite(expr, value),))[0]

    kept = _without(map_exprs(op.body, inlined), set(member.arrays))
    assert kept is not None
    rest = tuple(m for m in op.members if m.op is not member.op)
    return _removed(state, op, replace(op, body=kept, members=rest), set(member.arrays))


def within_bounds(reader: Operation, name: str, values: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """What a stage computes with another one inlined; BadArgument if that is more than can be compiled."""
    _refuse(reader, name, excess(values))
    return values


def check_growth(reader: ComputeOp, op: ComputeOp) -> None:
    """Refuse to inline what would be more than can be compiled, before it is made."""
    names = {b.name for b in buffers(op)}
    reads = sum(isinstance(n, Load) and n.buffer.name in names for body in reader.body for n in walk(body))
    count = operations(reader.body) + reads * (max(operations([body]) for body in op.body) - 1)
    _refuse(reader, op.name, too_many(count))


def _refuse(reader: Operation, name: str, wrong: str) -> None:
    if wrong:
        why = f"{reader.name} with {name} inlined is made of {wrong}"
        raise BadArgument("", why, suggested=[f"s[{name!r}].compute_root()"])


def member_in_scope(state: ScheduleState, stage: str, name: str, scope: str) -> ScheduleState:
    """Return the state in which the arrays of a member are in another memory."""
    op = state.program[stage]
    member = member_of(op, name)
    assert isinstance(op, HybridOp) and member is not None
    _require_local(op, member)
    body = with_buffers(op.body, lambda b: replace(b, scope=scope) if b.name in member.arrays else b)
    return replace(state, program=state.program.replacing({stage: replace(op, body=body)}))


def _require_local(op: HybridOp, member: Member) -> None:
    arrays = [s.buffer.name for s in walk_stmt(op.body) if isinstance(s, Allocate)]
    owners = [array for m in op.members for array in m.arrays]
    if any(a not in arrays or owners.count(a) > 1 for a in member.arrays):
        raise BadArgument("", f"{member.op.name} computes a state, which must be stored in full")


def _stores(op: HybridOp, member: Member) -> dict[str, Store]:
    """The one store of every array of a member."""
    _require_local(op, member)
    if member.op.reduction is not None:
        raise BadArgument("", f"{member.op.name} is a reduction and must be stored")
    return {s.buffer.name: s for s in walk_stmt(op.body) if isinstance(s, Store) and s.buffer.name in member.arrays}


def _check(state: ScheduleState, op: HybridOp, member: Member) -> None:
    """Refuse reads at an element that only a run knows."""
    name = member.op.name
    for source in sources(op).values():
        loops = source.axes
        exprs = (source.store.value, *source.store.index, *source.conditions)
        for load, _ in unproven_among(exprs, loops, state.sizes):
            if load.buffer.name in member.arrays:
                raise BadArgument("", f"{load} is read at an index that is not affine: {name} must be stored")


def _check_iterations(op: HybridOp, member: Member, stores: dict[str, Store]) -> None:
    """Refuse reads of what another iteration stored, from an array that only that iteration has."""
    around = _loops_around(op.body, ())
    loads = [n for s in walk_stmt(op.body) for e in stmt_exprs(s) for n in walk(e) if isinstance(n, Load)]
    for load in loads:
        if load.buffer.name not in stores:
            continue
        store = stores[load.buffer.name]
        used = {n.buffer.name for n in walk(store.value) if isinstance(n, Load)}
        for own, at in zip(store.index, load.index, strict=True):
            if isinstance(own, Var) and not (isinstance(at, Var) and at.name == own.name):
                anew = sorted(array for array in used if own.name in around.get(array, ()))
                if anew:
                    why = f"{load} is of another iteration of {own.name}, each of which has {anew[0]} anew"
                    raise BadArgument("", f"{why}: {member.op.name} must be stored, or {anew[0]} be inlined first")


def _loops_around(stmt: Stmt, loops: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """The loops around the allocation of each array."""
    found = {stmt.buffer.name: loops} if isinstance(stmt, Allocate) else {}
    inside = (*loops, stmt.var.name) if isinstance(stmt, For) else loops
    for child in children(stmt):
        found |= _loops_around(child, inside)
    return found


def _without(stmt: Stmt, arrays: set[str]) -> Stmt | None:
    """A statement without the stores to some arrays, and without what is empty then."""
    match stmt:
        case Store():
            return None if stmt.buffer.name in arrays else stmt
        case Seq():
            kept = [s for s in (_without(s, arrays) for s in stmt.body) if s is not None]
            return block(kept) if kept else None
        case Allocate() if stmt.buffer.name in arrays:
            return _without(stmt.body, arrays)
        case For() | Allocate():
            body = _without(stmt.body, arrays)
            return None if body is None else map_children(stmt, lambda _: body)
        case If():
            then = _without(stmt.then, arrays)
            return None if then is None else replace(stmt, then=then)
    return stmt


def _removed(state: ScheduleState, old: HybridOp, new: HybridOp, arrays: set[str]) -> ScheduleState:
    """The stage without the statements that stored the arrays; what is left keeps its loops."""
    current = state.stages[old.name]
    kept = [n for n, s in sources(old).items() if s.store.buffer.name not in arrays]
    number = dict(zip(kept, sources(new), strict=True))
    strands = {
        name: replace(strand, source=number[strand.source])
        for name, strand in current.strands.items()
        if strand.source in number
    }
    tree = _pruned(current.order, strands)
    gone = set(current.leaves) - set(order.axes(tree))
    for other in state.attached_to(old.name):
        assert other.attach is not None
        if other.attach.axis in gone:
            raise BadArgument("", f"{other.name} is computed at loop {other.attach.axis}, which would be empty")
    notes = {axis: note for axis, note in current.annotations.items() if axis not in gone}
    storage = current.storage.without(arrays)
    stage = replace(current, order=tree, strands=strands, annotations=notes, storage=storage)
    return replace(state, program=state.program.replacing({old.name: new})).with_stage(stage)


def _pruned(nodes: Order, strands: dict[str, Strand]) -> Order:
    """The tree without other statements and without loops around nothing."""
    kept: list[LoopNode | str] = []
    for node in nodes:
        if isinstance(node, str):
            kept += [node] if node in strands else []
        elif body := _pruned(node.body, strands):
            kept.append(LoopNode(node.axis, body))
    return tuple(kept)
