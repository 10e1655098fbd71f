"""The statements of one operation, over the loops that a schedule gave it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorlang.ir.expr import Buffer, Expr, Load, substitute, to_text, variables
from tensorlang.ir.index import to_index
from tensorlang.polyhedral.extract import guarded_loads
from tensorlang.polyhedral.statement import Access, Role, Statement
from tensorlang.te.operation import ComputeOp, ExternOp, Operation, buffers

Loops = tuple[tuple[str, ...], tuple[str, ...], dict[str, Expr]]


def statements_of(op: Operation, loops: Loops, values: Mapping[str, Expr], guards: Sequence[Expr]) -> list[Statement]:
    """Return one PURE or EXTERN statement, or INIT and UPDATE of a reduction."""
    if not isinstance(op, ComputeOp):
        return [_extern(op, loops[0])]
    around, init_loops, renamed = loops
    env = dict(values)
    where = tuple(to_index(substitute(w, env)) for w in op.where)
    index = tuple(env[a.name] for a in op.axes)
    writes = tuple(Access(b.name, index) for b in buffers(op))
    point = tuple((a.name, env[a.name]) for a in op.axes)
    reduction = op.reduction
    if reduction is None:
        domain = (*guards, *where)
        return [Statement(op.name, op.name, Role.PURE, around, domain, point, writes, _reads(op, op.body, env))]
    reduce_loops = set(around) - set(init_loops) - set(renamed)
    spatial = tuple(g for g in guards if not reduce_loops & variables(g))
    rename = dict(renamed)
    first = Statement(
        f"{op.name}.init",
        op.name,
        Role.INIT,
        init_loops,
        tuple(substitute(c, rename) for c in (*spatial, *where)),
        tuple((a, substitute(v, rename)) for a, v in point),
        tuple(Access(w.array, tuple(substitute(i, rename) for i in index)) for w in writes),
        tuple(_renamed(r, rename) for r in _reads(op, reduction.start(), env)),
    )
    chosen = () if reduction.where is None else (to_index(substitute(reduction.where, env)),)
    full = (*point, *((a.name, env[a.name]) for a in op.reduce_axes))
    domain = (*guards, *where, *chosen)
    update = Statement(op.name, op.name, Role.UPDATE, around, domain, full, writes, _reads(op, op.body, env))
    return [first, update]


def _extern(op: Operation, around: tuple[str, ...]) -> Statement:
    assert isinstance(op, ExternOp)
    reads = tuple(Access(b.name, None) for b in op.inputs if isinstance(b, Buffer))
    writes = tuple(Access(b.name, None) for b in buffers(op))
    return Statement(op.name, op.name, Role.EXTERN, around, (), (), writes, reads)


def _reads(op: ComputeOp, bodies: Sequence[Expr], env: Mapping[str, Expr]) -> tuple[Access, ...]:
    found: dict[str, Access] = {}
    for body in bodies:
        for load, conditions in guarded_loads(body):
            key = to_text(load) + "|".join(map(to_text, conditions))
            if key not in found:
                found[key] = _access(load, conditions, env)
    return tuple(found.values())


def _access(load: Load, conditions: Sequence[Expr], env: Mapping[str, Expr]) -> Access:
    index = tuple(to_index(substitute(i, dict(env))) for i in load.index)
    return Access(load.buffer.name, index, (), tuple(to_index(substitute(c, dict(env))) for c in conditions))


def _renamed(access: Access, rename: dict[str, Expr]) -> Access:
    index = None if access.index is None else tuple(substitute(i, rename) for i in access.index)
    return Access(access.array, index, access.version, tuple(substitute(c, rename) for c in access.conditions))
