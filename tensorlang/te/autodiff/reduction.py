"""Reductions as chains of simple ones, and what the derivative of one term of them is.

| reduction | derivative of one term |
|---|---|
| sum | 1 |
| prod | the product of all other terms, made by a reduction of its own: right for zeros, in quadratic time |
| max, min | 1 / n for the n terms that equal the extremum, 0 for the others |

The equality of max and min must not be lost to rounding, so their terms are stored unless they are plain values.
"""

from __future__ import annotations

from dataclasses import replace

from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Select,
    Unary,
    Var,
    binary,
    const,
    select,
    substitute,
    walk,
)
from tensorlang.ir.traverse import bounded
from tensorlang.location import caller
from tensorlang.te.autodiff.partials import times
from tensorlang.te.axis import Axis, AxisKind
from tensorlang.te.define import compute
from tensorlang.te.operation import ComputeOp, Read, Reduce, Tensor
from tensorlang.te.program import unique
from tensorlang.te.reductions import all_, any_, sum_

_KINDS = {"add": "sum", "mul": "prod", "max": "max", "min": "min"}
_ORDERS = ("gt", "ge", "lt", "le")


def kind(op: ComputeOp) -> str:
    """sum, prod, max or min, whatever the reducer is called; DefinitionError for any other."""
    assert op.reduction is not None
    reducer = op.reduction.reducer
    match reducer.result:
        case (Binary(op=combine, a=Var(name=a), b=Var(name=b)),) if combine in _KINDS:
            if {a, b} == {reducer.lhs[0].name, reducer.rhs[0].name}:
                return _KINDS[combine]
        case (Select(cond=Binary(op=order, a=Var(name=a), b=Var(name=b)), then=Var(name=c), orelse=Var(name=d)),):
            if {a, b} == {c, d} == {reducer.lhs[0].name, reducer.rhs[0].name} and order in _ORDERS:
                return "max" if (order in _ORDERS[:2]) == (a == c) else "min"
    raise DefinitionError(
        f"{op.name} reduces with {reducer.name}, whose derivative te.gradient does not know; it knows te.sum, te.prod, "
        "te.max and te.min: write the reduction with them, or its derivative as a te.compute of its own",
        caller(),
    )


def stages(op: ComputeOp) -> tuple[ComputeOp, ...]:
    """An operation as a chain of simple ones, the last with its values: reductions without `init` over plain terms."""
    reduction = op.reduction
    if reduction is None:
        return (op,)
    chain: list[ComputeOp] = []
    if kind(op) != "sum" and not _is_plain(reduction.sources[0]):
        stored = _stored(op, reduction)
        chain.append(stored)
        read = Read(stored.output(), (*_points(op.axes), *(axis.var - axis.lower for axis in reduction.axes)))
        reduction = replace(reduction, sources=(read,))
    if not reduction.init:
        return (*chain, op if not chain else replace(op, body=(reduction,)))
    bare = replace(op, name=f"{op.name}_reduced", body=(replace(reduction, init=()),))
    reducer, read = reduction.reducer, Read(bare.output(), _points(op.axes))
    values = {reducer.lhs[0].name: read, reducer.rhs[0].name: reduction.init[0]}
    combined = replace(op, reduce_axes=(), body=(substitute(reducer.result[0], values),))
    return (*chain, bare, combined)


def derivative(op: ComputeOp, adjoint: Expr) -> tuple[Expr, tuple[Expr, ...]]:
    """The adjoint of one term of a simple reduction, from that of the result, and the condition on the term."""
    reduction = op.reduction
    assert reduction is not None
    match kind(op):
        case "sum":
            return adjoint, ()
        case "prod":
            others = _others(op, reduction)
            at = (*_points(op.axes), *(axis.var - axis.lower for axis in reduction.axes))
            return times(adjoint, Read(others, at)), ()
    chosen = binary("eq", reduction.sources[0], Read(op.output(), _points(op.axes)))
    return adjoint / Read(_ties(op, reduction, chosen), _points(op.axes)), (chosen,)


@bounded
def _is_plain(value: Expr) -> bool:
    """Whether a value is the same however it is compiled: nothing is rounded."""
    match value:
        case Read() | Const():
            return True
        case Select():
            return _is_plain(value.then) and _is_plain(value.orelse)
        case Unary() | Cast() | Binary(op="min" | "max") | Call(name="abs"):
            return all(_is_plain(child) for child in value.children())
    return False


def _points(axes: tuple[Axis, ...]) -> tuple[Expr, ...]:
    return tuple(axis.var for axis in axes)


def _over_all(op: ComputeOp, reduction: Reduce, body: Expr, name: str) -> ComputeOp:
    """An operation over the axes and the reduce axes of another; the latter start at zero there."""
    shifted = {a.name: a.var + a.lower for a in reduction.axes}
    axes = (*op.axes, *reduction.axes)
    value = substitute(body, shifted)
    made = compute(
        tuple(a.extent for a in axes), lambda *_: value, name=f"{op.name}_{name}", varargs_names=[a.name for a in axes]
    ).op
    assert isinstance(made, ComputeOp)
    return made


def _stored(op: ComputeOp, reduction: Reduce) -> ComputeOp:
    source, where = reduction.sources[0], reduction.where
    value = source if where is None else select(where, source, const(0, source.dtype))
    return _over_all(op, reduction, value, "terms")


def _others(op: ComputeOp, reduction: Reduce) -> Tensor:
    """For every term, the product of the others."""
    taken = {a.name for a in (*op.axes, *reduction.axes)}
    taken |= {
        n.name for a in (*op.axes, *reduction.axes) for e in (a.lower, a.extent) for n in walk(e) if isinstance(n, Var)
    }
    names: dict[str, str] = {}
    for axis in reduction.axes:
        names[axis.name] = unique(f"{axis.name}_1", taken | set(names.values()))
    other = [Axis(names[a.name], a.extent, AxisKind.REDUCE, a.lower) for a in reduction.axes]
    renamed: dict[str, Expr] = {old: Var(new) for old, new in names.items()}
    apart = any_(*(binary("ne", a.var, o.var) for a, o in zip(reduction.axes, other, strict=True)))
    where = apart if reduction.where is None else all_(substitute(reduction.where, renamed), apart)
    sources = tuple(substitute(s, renamed) for s in reduction.sources)
    return _over_all(
        op, reduction, replace(reduction, sources=sources, axes=tuple(other), where=where), "others"
    ).output()


def _ties(op: ComputeOp, reduction: Reduce, chosen: Expr) -> Tensor:
    """For every element, how many terms equal it."""
    one, zero = const(1, op.dtype), const(0, op.dtype)
    total = sum_(select(chosen, one, zero), axis=reduction.axes, where=reduction.where)
    tensor: Tensor = compute(
        op.shape, lambda *_: total, name=f"{op.name}_ties", varargs_names=[a.name for a in op.axes]
    )
    return tensor
