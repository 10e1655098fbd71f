"""Functions of several tensors, element by element, shapes broadcast as NumPy does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import invert, neg
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tensorlang import te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Const, Expr, ExprLike, binary, same, walk
from tensorlang.location import caller
from tensorlang.te.operation import Read, Tensor
from tensorlang.topi.axes import sizes
from tensorlang.topi.checked import checked
from tensorlang.topi.operator import Operator

Array = npt.NDArray[Any]
Operand: TypeAlias = Tensor | ExprLike
"""A tensor, or a number that stands for one of any shape."""


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
    wanted = sizes("broadcast_to", shape)
    last = wanted[len(wanted) - data.ndim :]
    if len(wanted) < data.ndim or not all(_is_one(a) or same(a, b) for a, b in zip(data.shape, last, strict=True)):
        raise DefinitionError(f"broadcast_to: {data} does not fit the shape ({', '.join(map(str, shape))})")
    made = te.compute(tuple(wanted), lambda *i: _element(data, i), name=name)
    assert isinstance(made, Tensor)
    return made


@checked
def add(lhs: Operand, rhs: Operand, name: str = "add") -> Tensor:
    """Return `lhs + rhs`."""
    return together(te.add, name, lhs, rhs)


@checked
def subtract(lhs: Operand, rhs: Operand, name: str = "subtract") -> Tensor:
    """Return `lhs - rhs`."""
    return together(te.subtract, name, lhs, rhs)


@checked
def multiply(lhs: Operand, rhs: Operand, name: str = "multiply") -> Tensor:
    """Return `lhs * rhs`."""
    return together(te.multiply, name, lhs, rhs)


@checked
def divide(lhs: Operand, rhs: Operand, name: str = "divide") -> Tensor:
    """Return `lhs / rhs`; integers round towards zero."""
    return together(te.div, name, lhs, rhs)


@checked
def maximum(lhs: Operand, rhs: Operand, name: str = "maximum") -> Tensor:
    """Return the larger of both; NaN if one is."""
    return together(te.maximum, name, lhs, rhs)


@checked
def minimum(lhs: Operand, rhs: Operand, name: str = "minimum") -> Tensor:
    """Return the smaller of both; NaN if one is."""
    return together(te.minimum, name, lhs, rhs)


@checked
def power(lhs: Operand, rhs: Operand, name: str = "power") -> Tensor:
    """Return `lhs` to the power `rhs`, of floats."""
    return together(te.power, name, lhs, rhs)


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


def together(function: Callable[..., Expr], name: str, *operands: Operand) -> Tensor:
    """A tensor made element by element; shapes are broadcast. DefinitionError where no operand is a tensor."""
    tensors = [x for x in operands if isinstance(x, Tensor)]
    if not tensors:
        text = f"topi.{name} wants a tensor, got numbers only; te has such functions of numbers"
        raise DefinitionError(text, caller())
    shape = broadcast_shape(name, tensors)
    made = te.compute(shape, lambda *i: function(*(_value(x, i) for x in operands)), name=name)
    assert isinstance(made, Tensor)
    return made


def elementwise(op: str, *operands: Any) -> Tensor:
    """What an operator of expressions makes of tensors and numbers, by its name in the nodes of expressions."""
    for number in operands:
        if isinstance(number, Expr) and any(isinstance(node, Read) for node in walk(number)):
            tensor = next(x for x in operands if isinstance(x, Tensor))
            tensor()  # an element beside it: one of this tensor was meant
    if op == "cast":
        tensor, dtype = operands
        return together(lambda v: v.astype(dtype), "cast", tensor)
    function: Any = {"neg": neg, "invert": invert}.get(op) or partial(binary, op)
    return together(function, _NAMES.get(op, op), *operands)


_NAMES = {"sub": "subtract", "mul": "multiply", "div": "divide", "neg": "negative", "invert": "bitwise_not"}
"""Operators of expressions whose operator here has another name."""


def _value(operand: Operand, index: Sequence[Expr]) -> ExprLike:
    """The element of an operand that stands for an index of the common shape."""
    return _element(operand, index) if isinstance(operand, Tensor) else operand


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
