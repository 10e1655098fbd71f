"""Sums of products by weights that are known, as 8 bits take them: what is read, weighed, and padded."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tensorlang.dataclass import dataclass
from tensorlang.ir.affine import AT_LEAST_ZERO, Affine, add, affine
from tensorlang.ir.expr import Binary, Const, Expr, Load, Select, Var, variables
from tensorlang.networks.network import Array
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import ComputeOp, Operation, Reduce
from tensorlang.te.reducer import builtin

_LEAST_TERMS = 8
"""Terms of a sum that is worth other numbers."""
_MOST_TERMS = (2**31 - 1) // (255 * 128)
"""Terms of products of bytes whose sum fits in 32 bits."""


@dataclass(frozen=True, slots=True)
class Product:
    """A stage `sum(data * weight)` in float32, over all of the weight for each index of some of its dimensions.

    `bounds`: the first and the last of each axis. `columns`: the dimensions of the weight that results have. `frame`:
    how far before and behind each dimension of the data the sum reaches, where it counts what it reads as 0.
    `is_matrix`: no axis of the results moves both factors, as in products of matrices. `by_channels`: windows slide
    over each channel by itself.
    """

    op: ComputeOp
    bounds: Mapping[str, tuple[int, int]]
    data: Load
    weight: Load
    columns: tuple[int, ...]
    frame: tuple[tuple[int, int], ...]
    is_matrix: bool
    by_channels: bool

    @property
    def terms(self) -> int:
        """Products of a sum."""
        return math.prod(last - first + 1 for first, last in (self.bounds[a.name] for a in self.op.reduce_axes))

    @property
    def uses(self) -> int:
        """How often each weight is used in a call."""
        results = math.prod(extent_of(axis.extent) or 0 for axis in self.op.axes)
        return results // max(1, math.prod(extent_of(self.weight.buffer.shape[d]) or 0 for d in self.columns))


def product_of(op: Operation, weights: Mapping[str, Array]) -> Product | None:
    """A stage as a product; None for any other."""
    if not isinstance(op, ComputeOp) or op.where or len(op.body) != 1:
        return None
    match op.body[0]:
        case Reduce(sources=(Binary(op="mul", a=x, b=y),), init=()) as total if total.reducer == builtin(
            "sum", "float32"
        ):
            pass
        case _:
            return None
    if isinstance(x, Load) and x.buffer.name in weights:
        x, y = y, x
    inside, data = _element(x)
    if data is None or not isinstance(y, Load) or y.buffer.name not in weights or data.buffer.name in weights:
        return None
    columns, bounds = _columns(op, y), _bounds(op)
    frame = None if bounds is None else _frame(bounds, data, [*inside, *_conjuncts(total.where)])
    if columns is None or bounds is None or frame is None:
        return None
    own = {a.name for a in op.axes}
    shared = _names(data) & _names(y) & own
    mixed = {a.name for a in op.reduce_axes if bounds[a.name][1] and not _slides(data, a.name, own - _names(y))}
    found = Product(op, bounds, data, y, columns, frame, not shared, bool(shared) and not mixed)
    return found if _LEAST_TERMS <= found.terms <= _MOST_TERMS else None


def _slides(data: Load, axis: str, places: set[str]) -> bool:
    """Whether an axis of a sum moves data along with an axis of results that moves no weights."""
    return any(axis in variables(index) and variables(index) & places for index in data.index)


def _element(x: Expr) -> tuple[list[Expr], Load | None]:
    """The element that a term reads, and the conditions under which it is not 0."""
    match x:
        case Load():
            return [], x
        case Select(cond=cond, then=Load() as load, orelse=Const(value=0)):
            return _conjuncts(cond), load
    return [], None


def _conjuncts(condition: Expr | None) -> list[Expr]:
    match condition:
        case None:
            return []
        case Binary(op="and", a=a, b=b):
            return [*_conjuncts(a), *_conjuncts(b)]
        case _:
            return [condition]


def _names(load: Load) -> set[str]:
    return {name for index in load.index for name in variables(index)}


def _columns(op: ComputeOp, weight: Load) -> tuple[int, ...] | None:
    """The dimensions of a weight that no axis of the sum moves along; the others are read in whole for each result."""
    summed = {a.name: extent_of(a.extent) for a in op.reduce_axes}
    columns, read = list[int](), set[str]()
    for d, index in enumerate(weight.index):
        if not variables(index) & summed.keys():
            columns.append(d)
        elif isinstance(index, Var) and extent_of(weight.buffer.shape[d]) == summed[index.name]:
            read.add(index.name)
        else:
            return None
    return tuple(columns) if all(n == 1 or name in read for name, n in summed.items()) else None


def _bounds(op: ComputeOp) -> dict[str, tuple[int, int]] | None:
    """The first and the last of each axis; None where one is no number."""
    bounds = {}
    for axis in (*op.axes, *op.reduce_axes):
        extent, lower = extent_of(axis.extent), extent_of(axis.lower)
        if extent is None or lower is None:
            return None
        bounds[axis.name] = lower, lower + extent - 1
    return bounds


def _frame(bounds: Mapping[str, tuple[int, int]], data: Load, inside: list[Expr]) -> tuple[tuple[int, int], ...] | None:
    """How far a sum reaches beyond its data; None unless its conditions are that it does not."""
    found, allowed = list[tuple[int, int]](), list[Affine]()
    for index, size in zip(data.index, data.buffer.shape, strict=True):
        place, extent = affine(index), extent_of(size)
        if extent is None or place is None:
            found.append((0, 0))  # without conditions all indices are within the data
            continue
        allowed += [place, add({"": extent - 1}, place, -1)]
        ends = [sorted(factor * bound for bound in bounds[name]) for name, factor in place.items() if name]
        first, last = (place.get("", 0) + sum(end[k] for end in ends) for k in (0, 1))
        found.append((max(0, -first), max(0, last - extent + 1)))
    return tuple(found) if all(_at_least_zero(c) in allowed for c in inside) else None


def _at_least_zero(condition: Expr) -> Affine | None:
    """What a comparison says is at least 0."""
    match condition:
        case Binary(op=op, a=a, b=b) if op in AT_LEAST_ZERO:
            left, right = affine(a), affine(b)
            if left is None or right is None:
                return None
            factor, more = AT_LEAST_ZERO[op]
            form = add({}, add(left, right, -1), factor)
            return add(form, {"": more}) if more else form
    return None
