"""The statements of one operation, over the loops that a schedule gave it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tensorlang.ir.expr import Binary, Buffer, Const, Expr, substitute, to_text, variables
from tensorlang.ir.index import to_index
from tensorlang.ir.simplify import simplify
from tensorlang.polyhedral.extract import guarded_loads
from tensorlang.polyhedral.statement import Access, Role, Statement
from tensorlang.te.operation import ComputeOp, ExternOp, Operation, buffers

Loops = tuple[tuple[str, ...], tuple[str, ...], dict[str, Expr]]
Limits = Mapping[str, tuple[int | None, int | None]]


def statements_of(
    op: Operation, loops: Loops, values: Mapping[str, Expr], guards: Sequence[Expr], limits: Limits
) -> list[Statement]:
    """Return one PURE or EXTERN statement, or INIT and UPDATE of a reduction.

    `values` are the operation's axes in terms of the loops; `limits` the constant bounds of loops, for simplifying.
    """
    if not isinstance(op, ComputeOp):
        return [_extern(op, loops[0])]
    around, init_loops, renamed = loops
    at = Values(dict(values), limits)
    where = at.conditions(op.where)
    index = tuple(values[a.name] for a in op.axes)
    writes = tuple(Access(b.name, index) for b in buffers(op))
    point = tuple((a.name, values[a.name]) for a in op.axes)
    reduction = op.reduction
    if reduction is None:
        domain = (*guards, *where)
        return [Statement(op.name, op.name, Role.PURE, around, domain, point, writes, _reads(op.body, at))]
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
        tuple(_renamed(r, rename) for r in _reads(reduction.start(), at)),
    )
    chosen = () if reduction.where is None else at.conditions([reduction.where])
    full = (*point, *((a.name, values[a.name]) for a in op.reduce_axes))
    domain = (*guards, *where, *chosen)
    update = Statement(op.name, op.name, Role.UPDATE, around, domain, full, writes, _reads(op.body, at))
    return [first, update]


@dataclass(frozen=True, slots=True)
class Values:
    """The values of an operation's axes in terms of loops, and the bounds of those loops."""

    axes: dict[str, Expr]
    limits: Limits

    def index(self, expr: Expr) -> Expr:
        """An index or a condition over the axes, as a simplified one over the loops."""
        return simplify(to_index(substitute(expr, self.axes)), self.limits)

    def conditions(self, conditions: Iterable[Expr]) -> tuple[Expr, ...]:
        """Conditions over the loops, without those that always hold."""
        return tuple(c for c in map(self.index, _conjuncts(conditions)) if not is_true(c))


def _conjuncts(conditions: Iterable[Expr]) -> Iterator[Expr]:
    """Conditions one by one: what isl cannot see then does not hide the rest."""
    for condition in conditions:
        if isinstance(condition, Binary) and condition.op == "and":
            yield from _conjuncts(condition.children())
        else:
            yield condition


def is_true(condition: Expr) -> bool:
    """Whether a condition is the constant True."""
    return isinstance(condition, Const) and bool(condition.value)


def _extern(op: Operation, around: tuple[str, ...]) -> Statement:
    assert isinstance(op, ExternOp)
    reads = tuple(Access(b.name, None) for b in op.inputs if isinstance(b, Buffer))
    writes = tuple(Access(b.name, None) for b in buffers(op))
    return Statement(op.name, op.name, Role.EXTERN, around, (), (), writes, reads)


def _reads(bodies: Sequence[Expr], at: Values) -> tuple[Access, ...]:
    found: dict[str, Access] = {}
    for body in bodies:
        for load, conditions in guarded_loads(body):
            key = to_text(load) + "|".join(map(to_text, conditions))
            if key not in found:
                index = tuple(at.index(i) for i in load.index)
                found[key] = Access(load.buffer.name, index, (), at.conditions(conditions))
    return tuple(found.values())


def _renamed(access: Access, rename: dict[str, Expr]) -> Access:
    index = None if access.index is None else tuple(substitute(i, rename) for i in access.index)
    return Access(access.array, index, access.version, tuple(substitute(c, rename) for c in access.conditions))
