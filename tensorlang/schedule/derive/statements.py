"""The statements of one operation, over the loops that a schedule gave it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Binary, Buffer, Const, Expr, Var, binary, substitution, to_text, variables
from tensorlang.ir.index import to_index
from tensorlang.ir.simplify import simplify
from tensorlang.ir.stmt import INDEX
from tensorlang.polyhedral.extract import guarded_loads, key_of_load
from tensorlang.polyhedral.ordered import Source
from tensorlang.polyhedral.statement import Access, Role, Statement
from tensorlang.te.operation import ComputeOp, ExternOp, Operation, buffers

Loops = tuple[tuple[str, ...], tuple[str, ...], dict[str, Expr]]
Limits = Mapping[str, tuple[int | None, int | None]]


def statements_of(
    op: Operation,
    loops: Loops,
    values: Mapping[str, Expr],
    guards: Sequence[Expr],
    limits: Limits,
    strict: bool = False,
) -> list[Statement]:
    """Return one PURE or EXTERN statement, or INIT and UPDATE of a reduction.

    `values` are the operation's axes in terms of the loops; `limits` the constant bounds of loops, for simplifying.
    `strict`: floating-point updates keep the order of the reduce axes.
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
    rename = substitution(renamed)
    first = Statement(
        f"{op.name}.init",
        op.name,
        Role.INIT,
        init_loops,
        tuple(rename(c) for c in (*spatial, *where)),
        tuple((a, rename(v)) for a, v in point),
        tuple(Access(w.array, tuple(rename(i) for i in index)) for w in writes),
        tuple(_renamed(r, rename) for r in _reads(reduction.start(), at)),
    )
    chosen = () if reduction.where is None else at.conditions([reduction.where])
    full = (*point, *((a.name, values[a.name]) for a in op.reduce_axes))
    domain = (*guards, *where, *chosen)
    if strict and any(dtypes.info(d).is_float for d in op.dtypes):
        origin = tuple(values[a.name] for a in op.reduce_axes)
        writes = tuple(replace(w, origin=origin) for w in writes)
    update = Statement(op.name, op.name, Role.UPDATE, around, domain, full, writes, _reads(op.body, at))
    return [first, update]


@dataclass(frozen=True)
class Values:
    """The values of an operation's axes in terms of loops, and the bounds of those loops; `known` remembers indices."""

    axes: dict[str, Expr]
    limits: Limits
    known: dict[str, Expr] = field(default_factory=dict)
    met: dict[int, tuple[Expr, Expr]] = field(default_factory=dict)  # by the identity of indices, kept for that

    def index(self, expr: Expr) -> Expr:
        """An index or a condition over the axes, as a simplified one over the loops."""
        if id(expr) not in self.met:
            text = to_text(expr)
            if text not in self.known:
                self.known[text] = simplify(to_index(self._over_loops(expr)), self.limits)
            self.met[id(expr)] = expr, self.known[text]
        return self.met[id(expr)][1]

    @cached_property
    def _over_loops(self) -> Callable[[Expr], Expr]:
        """What puts the values of axes in expressions."""
        return substitution(self.axes)

    def indices(self, index: Iterable[Expr]) -> tuple[Expr, ...]:
        """Several indices at once."""
        return tuple(map(self.index, index))

    def conditions(self, conditions: Iterable[Expr]) -> tuple[Expr, ...]:
        """Conditions over the loops, without those that always hold."""
        return tuple(c for c in map(self.index, _conjuncts(conditions)) if not is_true(c))


@dataclass(frozen=True, slots=True)
class Place:
    """What the loops around a strand, and its relations, say of all statements that were inside the same loops.

    `at` gives those loops in terms of the ones of now, whose bounds are `bounds`; `guards` are the conditions of the
    domain beyond these, and `placing` those that tell instances apart.
    """

    loops: tuple[str, ...]
    at: Values
    bounds: tuple[Expr, ...]
    guards: tuple[Expr, ...]
    placing: tuple[Expr, ...]


def ordered_statement(
    stage: str, strand: str, source: Source, place: Place, own_arrays: Collection[str], strict: bool
) -> Statement:
    """Return a statement of a hybrid operation at a place; its domain begins with two bounds per loop.

    `own_arrays`: those that the operation writes. `strict`: floating-point updates keep their order.
    """
    at, values = place.at, place.at.axes
    origin = tuple(Const(p, INDEX) if isinstance(p, int) else values[p] for p in source.position)
    store, reducer = source.store, source.reducer
    if strict and dtypes.info(store.buffer.dtype).is_float:
        reducer = ""
    conditions = at.conditions(source.conditions)
    reads = [a for e in (*source.conditions, *store.index) for a in _reads((e,), at)]
    reads += _reads((store.value,), at)
    array, index = store.buffer.name, at.indices(store.index)
    if reducer:  # the element itself is read by the update
        key = _key(index)
        reads = [r for r in reads if r.array != array or _key(r.index) != key]
    return Statement(
        f"{stage}.{strand}",
        stage,
        Role.ORDERED,
        place.loops,
        (*place.bounds, *place.guards, *conditions),
        tuple((loop.var.name, values[loop.var.name]) for loop in source.loops),
        (Access(array, _of_copy(array, index, source, place), origin=origin, reducer=reducer),),
        tuple(_located(r, source, place, origin if r.array in own_arrays else ()) for r in reads),
        source=source.name,
        placing=place.placing,
    )


def _key(index: tuple[Expr, ...] | None) -> tuple[str, ...]:
    return () if index is None else tuple(map(to_text, index))


def _located(access: Access, source: Source, place: Place, origin: tuple[Expr, ...]) -> Access:
    """A read in its place; `origin`: its time in the program, if it has one."""
    if not origin and access.array not in source.scopes:
        return access
    index = None if access.index is None else _of_copy(access.array, access.index, source, place)
    return Access(access.array, index, conditions=access.conditions, origin=origin)


def _of_copy(array: str, index: tuple[Expr, ...], source: Source, place: Place) -> tuple[Expr, ...]:
    """The index of an array that is new in every iteration of some loops: in the copy of this iteration."""
    loops = source.scopes.get(array, ())
    return (*place.at.indices(binary("sub", Var(n, INDEX), source.hull[n][0]) for n in loops), *index)


def _conjuncts(conditions: Iterable[Expr]) -> Iterator[Expr]:
    """Conditions one by one: what isl cannot see then does not hide the rest."""
    waiting = list(conditions)[::-1]
    while waiting:
        condition = waiting.pop()
        if isinstance(condition, Binary) and condition.op == "and":
            waiting += (condition.b, condition.a)
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
    found: dict[tuple[str, ...], Access] = {}
    key_of = key_of_load()
    for body in bodies:
        for load, conditions in guarded_loads(body):
            key = key_of(load, conditions)
            if key not in found:
                index = tuple(at.index(i) for i in load.index)
                found[key] = Access(load.buffer.name, index, (), at.conditions(conditions))
    return tuple(found.values())


def _renamed(access: Access, rename: Callable[[Expr], Expr]) -> Access:
    index = None if access.index is None else tuple(map(rename, access.index))
    return Access(access.array, index, access.version, tuple(map(rename, access.conditions)))
