"""Functions of several tensors, element by element, shapes broadcast as NumPy does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from operator import invert, neg
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Const, Expr, ExprLike, as_expr, binary, same, walk
from tensorlang.location import caller
from tensorlang.te.operation import Read, Tensor
from tensorlang.topi.axes import sizes
from tensorlang.topi.checked import checked, named
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
    """Return `data` repeated along the dimensions that it lacks, or has once; DefinitionError where it does not fit.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.broadcast_to, [1, 2], shape=(2, 2))
    array([[1, 2],
           [1, 2]], dtype=int32)
    """
    wanted = sizes("broadcast_to", shape)
    last = wanted[len(wanted) - data.ndim :]
    if len(wanted) < data.ndim or not all(_is_one(a) or same(a, b) for a, b in zip(data.shape, last, strict=True)):
        raise DefinitionError(f"broadcast_to: {data} does not fit the shape ({', '.join(map(str, shape))})")
    made = te.compute(tuple(wanted), lambda *i: element_of(data, i), name=name)
    assert isinstance(made, Tensor)
    return made


@checked
def add(lhs: Operand, rhs: Operand, name: str = "add") -> Tensor:
    """Return `lhs + rhs`.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.add, [7, -7], [2, 2])
    array([ 9, -5], dtype=int32)
    """
    return together(te.add, name, lhs, rhs)


@checked
def subtract(lhs: Operand, rhs: Operand, name: str = "subtract") -> Tensor:
    """Return `lhs - rhs`.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.subtract, [7, -7], [2, 2])
    array([ 5, -9], dtype=int32)
    """
    return together(te.subtract, name, lhs, rhs)


@checked
def multiply(lhs: Operand, rhs: Operand, name: str = "multiply") -> Tensor:
    """Return `lhs * rhs`.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.multiply, [7, -7], [2, 2])
    array([ 14, -14], dtype=int32)
    """
    return together(te.multiply, name, lhs, rhs)


@checked
def divide(lhs: Operand, rhs: Operand, name: str = "divide") -> Tensor:
    """Return `lhs / rhs`; integers round towards zero.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.divide, [7, -7], [2, 2])
    array([ 3, -3], dtype=int32)
    """
    return together(te.div, name, lhs, rhs)


@checked
def maximum(lhs: Operand, rhs: Operand, name: str = "maximum") -> Tensor:
    """Return the larger of both; NaN if one is.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.maximum, [7, -7], [2, 2])
    array([7, 2], dtype=int32)
    """
    return together(te.maximum, name, lhs, rhs)


@checked
def minimum(lhs: Operand, rhs: Operand, name: str = "minimum") -> Tensor:
    """Return the smaller of both; NaN if one is.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.minimum, [7, -7], [2, 2])
    array([ 2, -7], dtype=int32)
    """
    return together(te.minimum, name, lhs, rhs)


@checked
def power(lhs: Operand, rhs: Operand, name: str = "power") -> Tensor:
    """Return `lhs` to the power `rhs`, of floats.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.power, [2.0, 3.0], [3.0, 2.0])
    array([8., 9.], dtype=float32)
    """
    return together(te.power, name, lhs, rhs)


def _pairs(
    name: str, element: Callable[..., Expr], doc: str, kinds: tuple[str, ...] = ("int", "uint", "float", "bool")
) -> Callable[..., Tensor]:
    """An operator of two tensors, or of a tensor and a number, of some kinds of elements."""

    def operator(lhs: Operand, rhs: Operand, name: str = name) -> Tensor:
        wrong = [x.dtype for x in (lhs, rhs) if isinstance(x, Tensor) and dtypes.info(x.dtype).kind not in kinds]
        if wrong:
            text = f"{operator.__name__} wants integers, got {' and '.join(wrong)}; topi.cast the tensors"
            raise DefinitionError(text, caller())
        return together(element, name, lhs, rhs)

    return named(name, doc, operator)


def _true(value: ExprLike) -> Expr:
    made = as_expr(value)
    return made if made.dtype == "bool" else made != 0


_BITS, _INTEGERS = ("int", "uint", "bool"), ("int", "uint")
greater = _pairs("greater", partial(binary, "gt"), "Return where `lhs > rhs`, as bool.")
less = _pairs("less", partial(binary, "lt"), "Return where `lhs < rhs`, as bool.")
greater_equal = _pairs("greater_equal", partial(binary, "ge"), "Return where `lhs >= rhs`, as bool.")
less_equal = _pairs("less_equal", partial(binary, "le"), "Return where `lhs <= rhs`, as bool.")
equal = _pairs("equal", partial(binary, "eq"), "Return where `lhs` equals `rhs`, as bool.")
not_equal = _pairs("not_equal", partial(binary, "ne"), "Return where `lhs` differs from `rhs`, as bool.")
logical_and = _pairs("logical_and", lambda a, b: _true(a) & _true(b), "Return where both are true (not zero).")
logical_or = _pairs("logical_or", lambda a, b: _true(a) | _true(b), "Return where one of both is true (not zero).")
logical_xor = _pairs("logical_xor", lambda a, b: _true(a) ^ _true(b), "Return where exactly one is true (not zero).")
bitwise_and = _pairs("bitwise_and", partial(binary, "bitand"), "Return the bits that both have.", _BITS)
bitwise_or = _pairs("bitwise_or", partial(binary, "bitor"), "Return the bits that one of both has.", _BITS)
bitwise_xor = _pairs("bitwise_xor", partial(binary, "bitxor"), "Return the bits that exactly one has.", _BITS)
left_shift = _pairs("left_shift", partial(binary, "shl"), "Return `lhs << rhs`; 0 from the width on.", _INTEGERS)
right_shift = _pairs(
    "right_shift",
    partial(binary, "shr"),
    "Return `lhs >> rhs`, keeping the sign, all of it from the width on.",
    _INTEGERS,
)
floor_divide = _pairs("floor_divide", te.floordiv, "Return `lhs / rhs` rounded down.")
floor_mod = _pairs("floor_mod", te.floormod, "Return the rest of `floor_divide`: it has the sign of `rhs`.")
trunc_divide = _pairs("trunc_divide", te.truncdiv, "Return `lhs / rhs` rounded towards zero.")
trunc_mod = _pairs("trunc_mod", te.truncmod, "Return the rest of `trunc_divide`: it has the sign of `lhs`.")
mod = _pairs("mod", te.truncmod, "Return the rest of `lhs / rhs` as in C: it has the sign of `lhs`.")


@checked
def elemwise_sum(xs: Sequence[Tensor], name: str = "elemwise_sum") -> Tensor:
    """Return the sum of tensors, element by element.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.elemwise_sum, ([1, 2], [3, 4], [5, 6]))
    array([ 9, 12], dtype=int32)
    """
    if not xs:
        raise DefinitionError("elemwise_sum wants at least one tensor, got none", caller())
    return together(lambda *values: reduce(te.add, values), name, *xs)


@checked
def where(condition: Tensor, x: Tensor, y: Tensor, name: str = "where") -> Tensor:
    """Return the element of `x` where `condition` is true (not zero), that of `y` elsewhere.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.where, [True, False], [1, 2], [3, 4])
    array([1, 4], dtype=int32)
    """
    shape = broadcast_shape("where", [condition, x, y])

    def element(*i: Expr) -> Expr:
        test = element_of(condition, i)
        chosen = test if test.dtype == "bool" else test != 0
        return te.select(chosen, element_of(x, i), element_of(y, i))

    made = te.compute(shape, element, name=name)
    assert isinstance(made, Tensor)
    return made


def together(function: Callable[..., Expr], name: str, *operands: Operand) -> Tensor:
    """A tensor made element by element; shapes are broadcast. Of expressions alone one; DefinitionError of numbers."""
    tensors = [x for x in operands if isinstance(x, Tensor)]
    if not tensors and any(isinstance(x, Expr) for x in operands):
        return function(*operands)  # type: ignore[return-value] # as classic topi has it
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
    return element_of(operand, index) if isinstance(operand, Tensor) else operand


def element_of(tensor: Tensor, index: Sequence[Expr]) -> Expr:
    """The element that stands for an index of the common shape."""
    own = index[len(index) - tensor.ndim :]
    return tensor(*[0 if _is_one(n) else i for i, n in zip(own, tensor.shape, strict=True)])


def _is_one(extent: Expr) -> bool:
    return isinstance(extent, Const) and extent.value == 1


_TABLE: tuple[tuple[Callable[..., Tensor], Callable[..., Array]], ...] = (
    (add, np.add),
    (subtract, np.subtract),
    (multiply, np.multiply),
    (divide, np.divide),
    (maximum, np.maximum),
    (minimum, np.minimum),
    (power, np.power),
    (greater, np.greater),
    (less, np.less),
    (greater_equal, np.greater_equal),
    (less_equal, np.less_equal),
    (equal, np.equal),
    (not_equal, np.not_equal),
    (logical_and, np.logical_and),
    (logical_or, np.logical_or),
    (logical_xor, np.logical_xor),
    (bitwise_and, np.bitwise_and),
    (bitwise_or, np.bitwise_or),
    (bitwise_xor, np.bitwise_xor),
    (left_shift, np.left_shift),
    (right_shift, np.right_shift),
    (floor_divide, np.floor_divide),
    (floor_mod, np.mod),
    (trunc_divide, lambda a, b, **to: np.floor_divide(np.abs(a), np.abs(b)) * np.sign(a) * np.sign(b)),
    (trunc_mod, np.fmod),
    (mod, np.fmod),
)


def _operator(function: Callable[..., Tensor], numpy: Callable[..., Array]) -> Operator:
    def compute(n: int, m: int, dtype: str = "float32") -> list[Tensor]:
        a, b = (te.placeholder((n, m), name=name, dtype=dtype) for name in "AB")
        return [a, b, function(a, b)]

    def reference(a: Array, b: Array) -> list[Array]:
        with np.errstate(all="ignore"):
            made = numpy(a, b)
        return [made if made.dtype == bool else made.astype(a.dtype)]

    def competitor(a: Array, b: Array, out: Array) -> None:
        with np.errstate(all="ignore"):
            np.copyto(out, numpy(a, b), casting="unsafe")

    return Operator(function.__name__, ("N", "M"), compute, reference, competitor)


OPERATORS = tuple(_operator(function, numpy) for function, numpy in _TABLE)
