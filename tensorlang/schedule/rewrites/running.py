"""Running reductions in pieces: of each piece, of all pieces up to each, and the elements of a piece from there on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tensorlang import te
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Binary, Const, Expr, Load, Select, Var, binary, same, select, substitute, walk
from tensorlang.ir.simplify import simplify
from tensorlang.ir.stmt import INDEX, For, If, LoopKind, Stmt, Store
from tensorlang.te.axis import Axis
from tensorlang.te.operation import HybridOp, Read, Tensor
from tensorlang.te.program import unique
from tensorlang.te.recurrence import only_store

REDUCTIONS: Mapping[str, Callable[..., Any]] = {
    "add": te.sum,
    "mul": te.prod,
    "min": te.min,
    "max": te.max,
    "and": te.all,
    "or": te.any,
}
"""Operators that may be applied in another order, and the reductions by them."""
_ZERO, _ONE = Const(0, INDEX), Const(1, INDEX)


@dataclass(frozen=True, slots=True)
class Running:
    """`C[.., p, ..] = combine(C[.., p - 1, ..], term)` for p > 0, `first` for p = 0, over one axis of an operation."""

    op: HybridOp
    dimension: int
    combine: str
    term: Expr
    first: Expr

    @property
    def axis(self) -> Axis:
        """The axis along which the elements run."""
        return self.op.axes[self.dimension]

    def at(self, expr: Expr, place: Expr) -> Expr:
        """A term or the first value elsewhere along the axis."""
        return simplify(substitute(expr, {self.axis.name: place}))


def running_of(op: HybridOp, axis: str) -> Running | None:
    """What an operation, as users declare it, reduces along an axis; None where it does something else."""
    names, store = [a.name for a in op.axes], only_store(op)
    if store is None or axis not in names or len(op.outputs) > 1 or op.updates[0] is not None:
        return None
    if not isinstance(store.value, Select):
        return None
    at, place = names.index(axis), store.index[names.index(axis)]
    rest, first = store.value.then, store.value.orelse
    if any(same(store.value.cond, binary(*test)) for test in (("eq", place, 0), ("lt", place, 1), ("le", place, 0))):
        rest, first = first, rest
    elif not any(same(store.value.cond, binary(*test)) for test in (("gt", place, 0), ("ge", place, 1))):
        return None
    before = (*store.index[:at], binary("sub", place, 1), *store.index[at + 1 :])
    if not isinstance(rest, Binary) or rest.op not in REDUCTIONS:
        return None
    terms = [x for x in (rest.a, rest.b) if not _is_element(x, store, before)]
    own = any(isinstance(x, Load) and x.buffer.name == op.name for e in (*terms, first) for x in walk(e))
    return None if own or len(terms) != 1 else Running(op, at, rest.op, terms[0], first)


def _is_element(expr: Expr, store: Store, index: tuple[Expr, ...]) -> bool:
    return (
        isinstance(expr, Load)
        and expr.buffer.name == store.buffer.name
        and all(same(simplify(a), simplify(b)) for a, b in zip(expr.index, index, strict=True))
    )


def in_pieces(running: Running, size: int, name: str) -> Tensor:
    """The same elements, of pieces of so many: as many threads as pieces may make them, in three stages."""
    op, d, dtype = running.op, running.dimension, running.op.outputs[0].dtype
    extent = running.axis.extent
    count = simplify(binary("floordiv", binary("add", extent, size - 1), size))
    taken = {*(a.name for a in op.axes), *(v for e in op.shape for v in _names(e))}
    outer = unique(f"{running.axis.name}_piece", taken)
    inner = unique(f"{running.axis.name}_in", {*taken, outer})
    names = [outer if n == d else a.name for n, a in enumerate(op.axes)]
    shape = [count if n == d else a.extent for n, a in enumerate(op.axes)]
    is_whole = simplify(binary("eq", binary("floormod", extent, size), 0))
    ends = not (isinstance(is_whole, Const) and is_whole.value)

    def piece(*index: Expr) -> Any:
        k = te.reduce_axis((0, size), inner)
        own = {a.name: i for n, (a, i) in enumerate(zip(op.axes, index, strict=True)) if n != d}
        place = index[d] * size + k.as_expr()
        term, first = running.at(running.term, place), running.at(running.first, place)
        term = term if same(term, first) else select(binary("gt", place, 0), term, first)
        where = binary("lt", place, extent) if ends else None
        return REDUCTIONS[running.combine](substitute(term, own), axis=k, where=where)

    def total(self: Any, *index: Expr) -> Expr:
        before = tuple(i - 1 if n == d else i for n, i in enumerate(index))
        return te.if_then_else(index[d] > 0, binary(running.combine, self[before], pieces[index]), pieces[index])

    pieces = te.compute(shape, piece, name=f"{name}_pieces", varargs_names=names)
    totals = te.recurrence(shape, total, name=f"{name}_totals", dtype=dtype, varargs_names=names)
    axes = (*op.axes[:d], Axis(outer, count), Axis(inner, Const(size, INDEX)), *op.axes[d + 1 :])
    body = _elements(running, totals, axes, size, ends)
    return replace(op, axes=axes, body=body).output(0)


def _elements(running: Running, totals: Tensor, axes: tuple[Axis, ...], size: int, ends: bool) -> Stmt:
    """The loops over pieces, in each of which elements run from what all pieces before it make together."""
    store, d = only_store(running.op), running.dimension
    assert store is not None
    o, k = (Var(a.name, INDEX) for a in axes[d : d + 2])
    place = binary("add", binary("mul", o, size), k)

    def along(place: Expr) -> tuple[Expr, ...]:
        return (*store.index[:d], place, *store.index[d + 1 :])

    term, first = running.at(running.term, place), running.at(running.first, _ZERO)
    before = Load(store.buffer, along(simplify(binary("sub", place, 1))))
    total = Read(totals, along(binary("sub", o, 1)))
    begun = select(binary("gt", o, 0), binary(running.combine, total, term), first)
    value = select(binary("gt", k, 0), binary(running.combine, before, term), begun)
    stmt: Stmt = Store(store.buffer, along(place), value)
    if ends:
        stmt = If(binary("lt", place, running.axis.extent), stmt)
    for axis in reversed(axes):
        stmt = For(Var(axis.name, INDEX), _ZERO, axis.extent, LoopKind.SERIAL, stmt, axis.name)
    return stmt


def _names(expr: Expr) -> set[str]:
    return {v.name for v in walk(expr) if isinstance(v, Var)}
