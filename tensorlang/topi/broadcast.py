"""Functions of several tensors, element by element, shapes broadcast as NumPy does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Const, Expr, ExprLike, as_expr, same
from tensorlang.te.operation import Tensor
from tensorlang.topi.checked import checked
from tensorlang.topi.operator import Operator

Array = npt.NDArray[Any]


def broadcast_shape(operator: str, tensors: Sequence[Tensor]) -> tuple[Expr, ...]:
    """The shape of tensors together, aligned at the last dimension; DefinitionError where extents differ."""
    rank = max(t.ndim for t in tensors)
    shape: list[Expr] = []
    for place in range(-rank, 0):
        extents = [t.shape[place] for t in tensors if t.ndim >= -place]
        wide = [n for n in extents if not _is_one(n)]
        if any(not same(wide[0], n) for n in wide[1:]):
            raise DefinitionError(f"{operator}: the shapes of {', '.join(map(repr, tensors))} do not fit together")
        shape.append(wide[0] if wide else extents[0])
    return tuple(shape)


@checked
def broadcast_to(data: Tensor, shape: Sequence[ExprLike], name: str = "broadcast_to") -> Tensor:
    """Return `data` repeated along the dimensions that it lacks, or has once; DefinitionError where it does not fit."""
    wanted = [as_expr(n) for n in shape]
    last = wanted[len(wanted) - data.ndim :]
    if len(wanted) < data.ndim or not all(_is_one(a) or same(a, b) for a, b in zip(data.shape, last, strict=True)):
        raise DefinitionError(f"broadcast_to: {data} does not fit the shape ({', '.join(map(str, shape))})")
    made = te.compute(tuple(wanted), lambda *i: _element(data, i), name=name)
    assert isinstance(made, Tensor)
    return made


@checked
def add(lhs: Tensor, rhs: Tensor, name: str = "add") -> Tensor:
    """Return `lhs + rhs`."""
    return _together(te.add, lhs, rhs, name)


@checked
def subtract(lhs: Tensor, rhs: Tensor, name: str = "subtract") -> Tensor:
    """Return `lhs - rhs`."""
    return _together(te.subtract, lhs, rhs, name)


@checked
def multiply(lhs: Tensor, rhs: Tensor, name: str = "multiply") -> Tensor:
    """Return `lhs * rhs`."""
    return _together(te.multiply, lhs, rhs, name)


@checked
def divide(lhs: Tensor, rhs: Tensor, name: str = "divide") -> Tensor:
    """Return `lhs / rhs`; integers round towards zero."""
    return _together(te.div, lhs, rhs, name)


@checked
def maximum(lhs: Tensor, rhs: Tensor, name: str = "maximum") -> Tensor:
    """Return the larger of both; NaN if one is."""
    return _together(te.maximum, lhs, rhs, name)


@checked
def minimum(lhs: Tensor, rhs: Tensor, name: str = "minimum") -> Tensor:
    """Return the smaller of both; NaN if one is."""
    return _together(te.minimum, lhs, rhs, name)


@checked
def power(lhs: Tensor, rhs: Tensor, name: str = "power") -> Tensor:
    """Return `lhs` to the power `rhs`, of floats."""
    return _together(te.power, lhs, rhs, name)


@checked
def where(condition: Tensor, x: Tensor, y: Tensor, name: str = "where") -> Tensor:
    """Return the element of `x` where `condition` is true (not zero), that of `y` elsewhere."""
    shape = broadcast_shape("where", [condition, x, y])

    def element(*i: Expr) -> Expr:
        test = _element(condition, i)
        chosen = test if test.dtype == "bool" else test != 0
        return te.select(chosen, _element(x, i), _element(y, i))

    made = te.compute(shape, element, name=name)
    assert isinstance(made, Tensor)
    return made


def _together(function: Callable[[ExprLike, ExprLike], Expr], lhs: Tensor, rhs: Tensor, name: str) -> Tensor:
    shape = broadcast_shape(name, [lhs, rhs])
    made = te.compute(shape, lambda *i: function(_element(lhs, i), _element(rhs, i)), name=name)
    assert isinstance(made, Tensor)
    return made


def _element(tensor: Tensor, index: Sequence[Expr]) -> Expr:
    """The element that stands for an index of the common shape."""
    own = index[len(index) - tensor.ndim :]
    return tensor(*[0 if _is_one(n) else i for i, n in zip(own, tensor.shape, strict=True)])


def _is_one(extent: Expr) -> bool:
    return isinstance(extent, Const) and extent.value == 1


_TABLE: tuple[tuple[Callable[[Tensor, Tensor], Tensor], Callable[..., Array]], ...] = (
    (add, np.add),
    (subtract, np.subtract),
    (multiply, np.multiply),
    (divide, np.divide),
    (maximum, np.maximum),
    (minimum, np.minimum),
    (power, np.power),
)


def _operator(function: Callable[[Tensor, Tensor], Tensor], numpy: Callable[..., Array]) -> Operator:
    def compute(n: int, m: int, dtype: str = "float32") -> list[Tensor]:
        a, b = (te.placeholder((n, m), name=name, dtype=dtype) for name in "AB")
        return [a, b, function(a, b)]

    def reference(a: Array, b: Array) -> list[Array]:
        with np.errstate(all="ignore"):
            return [numpy(a, b).astype(a.dtype)]

    def competitor(a: Array, b: Array, out: Array) -> None:
        with np.errstate(all="ignore"):
            numpy(a, b, out=out, casting="unsafe")

    return Operator(function.__name__, ("N", "M"), compute, reference, competitor)


OPERATORS = tuple(_operator(function, numpy) for function, numpy in _TABLE)
