"""Functions of one element that a table says whole: roundings, trigonometry, logarithms, tests, bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr
from tensorlang.location import caller
from tensorlang.te.operation import Tensor
from tensorlang.topi.activation import elementwise, elementwise_row
from tensorlang.topi.checked import checked, named

Array = npt.NDArray[Any]
Function: TypeAlias = Callable[..., Tensor]
_ALL, _FLOATS, _INTEGERS = ("int", "uint", "float", "bool"), ("float",), ("int", "uint")


def _of(kinds: tuple[str, ...], name: str, element: Callable[[Expr], Expr], doc: str) -> Function:
    """An operator of tensors of some kinds of elements; a function that tests floats makes bool."""

    def operator(x: Tensor, name: str = name) -> Tensor:
        if dtypes.info(x.dtype).kind not in kinds:
            wanted = "floats" if kinds == _FLOATS else "integers" if kinds == _INTEGERS else "numbers"
            raise DefinitionError(f"{operator.__name__} wants {wanted}, got {x.dtype}; topi.cast the tensor", caller())
        return elementwise(x, element, name)

    return named(name, doc, operator)


def _rounding(name: str, element: Callable[[Expr], Expr], doc: str) -> Function:
    """An operator that leaves integers as they are."""
    return _of(_ALL, name, lambda v: element(v) if dtypes.info(v.dtype).is_float else v, doc)


def _test(name: str, element: Callable[[Expr], Expr], whole: bool, doc: str) -> Function:
    """A test of floats, which integers pass or not."""
    return _of(_ALL, name, lambda v: element(v) if dtypes.info(v.dtype).is_float else te.const(whole, "bool"), doc)


def _sign(v: Expr) -> Expr:
    if dtypes.info(v.dtype).kind == "uint":
        return te.minimum(v, 1)
    return te.select(v > 0, 1, te.select(v < 0, -1, v * 0))


def _ceil_log2(v: Expr) -> Expr:
    return (dtypes.info(v.dtype).bits - te.clz(v - 1)).astype(v.dtype)


def _mish(v: Expr) -> Expr:
    return v * te.tanh(te.maximum(v, 0.0) + te.log1p(te.exp(-te.abs(v))))


floor = _rounding("floor", te.floor, "Return the largest whole numbers that are not above `x`.")
ceil = _rounding("ceil", te.ceil, "Return the smallest whole numbers that are not below `x`.")
trunc = _rounding("trunc", te.trunc, "Return `x` rounded towards zero.")
round = _rounding("round", te.round, "Return `x` rounded to whole numbers, halves to even ones.")  # noqa: A001
abs = _of(_ALL[:3], "abs", te.abs, "Return the absolute values of `x`.")  # noqa: A001
sign = _of(_ALL[:3], "sign", _sign, "Return -1, 0 or 1, by the sign of `x`; NaN where `x` is.")
negative = _of(_ALL[:3], "negative", lambda v: -v, "Return `-x`.")
identity = _of(_ALL, "identity", lambda v: v, "Return a copy of `x`.")
sin = _of(_FLOATS, "sin", te.sin, "Return the sine of `x`, in radians.")
cos = _of(_FLOATS, "cos", te.cos, "Return the cosine of `x`, in radians.")
tan = _of(_FLOATS, "tan", te.tan, "Return the tangent of `x`, in radians.")
asin = _of(_FLOATS, "asin", te.asin, "Return the angles, in radians, whose sine is `x`.")
acos = _of(_FLOATS, "acos", te.acos, "Return the angles, in radians, whose cosine is `x`.")
atan = _of(_FLOATS, "atan", te.atan, "Return the angles, in radians, whose tangent is `x`.")
sinh = _of(_FLOATS, "sinh", te.sinh, "Return the hyperbolic sine of `x`.")
cosh = _of(_FLOATS, "cosh", te.cosh, "Return the hyperbolic cosine of `x`.")
asinh = _of(_FLOATS, "asinh", te.asinh, "Return the inverse of the hyperbolic sine.")
acosh = _of(_FLOATS, "acosh", te.acosh, "Return the inverse of the hyperbolic cosine, of 1 and more.")
atanh = _of(_FLOATS, "atanh", te.atanh, "Return the inverse of the hyperbolic tangent, between -1 and 1.")
log2 = _of(_FLOATS, "log2", te.log2, "Return the logarithm to base 2.")
log10 = _of(_FLOATS, "log10", te.log10, "Return the logarithm to base 10.")
exp2 = _of(_FLOATS, "exp2", te.exp2, "Return 2 to the power `x`.")
fast_exp = _of(_FLOATS, "fast_exp", te.exp, "Return e to the power `x`: the same as `exp`, which is as fast.")
fast_tanh = _of(_FLOATS, "fast_tanh", te.tanh, "Return the hyperbolic tangent: the same as `tanh`, which is as fast.")
fast_erf = _of(_FLOATS, "fast_erf", te.erf, "Return the error function: the same as `erf`, which is as fast.")
mish = _of(_FLOATS, "mish", _mish, "Return `x * tanh(log(1 + exp(x)))` (Misra 2019).")
hardswish = _of(
    _FLOATS,
    "hardswish",
    lambda v: v * te.minimum(te.maximum(v + 3.0, 0.0), 6.0) / 6.0,
    "Return `x * min(max(x + 3, 0), 6) / 6` (Howard et al. 2019).",
)
hardsigmoid = _of(
    _FLOATS,
    "hardsigmoid",
    lambda v: te.minimum(te.maximum(v + 3.0, 0.0), 6.0) / 6.0,
    "Return `min(max(x + 3, 0), 6) / 6`.",
)
isnan = _test("isnan", te.isnan, False, "Return where `x` is not a number, as bool; no integer is.")
isinf = _test("isinf", te.isinf, False, "Return where `x` is an infinity, as bool; no integer is.")
isfinite = _test("isfinite", te.isfinite, True, "Return where `x` is a number, and no infinity, as bool.")
ceil_log2 = _of(_INTEGERS, "ceil_log2", _ceil_log2, "Return the smallest k with `2**k >= x`, of integers from 1 on.")
bitwise_not = _of(("int", "uint", "bool"), "bitwise_not", lambda v: ~v, "Return the bits of `x`, flipped.")
logical_not = _of(_ALL, "logical_not", lambda v: ~v if v.dtype == "bool" else v == 0, "Return where `x` is zero.")


@checked
def reinterpret(x: Tensor, dtype: str, name: str = "reinterpret") -> Tensor:
    """Return the bits of `x` as elements of another dtype, which is as wide.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.reinterpret, [1.0], dtype="uint32")
    array([1065353216], dtype=uint32)
    """
    made = te.compute(x.shape, lambda *i: te.reinterpret(dtype, x(*i)), name=name)
    assert isinstance(made, Tensor)
    return made


_NUMPY: tuple[tuple[Function, Callable[[Array], Array]], ...] = (
    (floor, np.floor),
    (ceil, np.ceil),
    (trunc, np.trunc),
    (round, np.rint),
    (abs, np.abs),
    (sign, np.sign),
    (negative, np.negative),
    (identity, np.positive),
    (sin, np.sin),
    (cos, np.cos),
    (tan, np.tan),
    (asin, np.arcsin),
    (acos, np.arccos),
    (atan, np.arctan),
    (sinh, np.sinh),
    (cosh, np.cosh),
    (asinh, np.arcsinh),
    (acosh, np.arccosh),
    (atanh, np.arctanh),
    (log2, np.log2),
    (log10, np.log10),
    (exp2, np.exp2),
    (mish, lambda x: x * np.tanh(np.logaddexp(x, 0))),
    (hardswish, lambda x: x * np.clip(x + 3, 0, 6) / 6),
    (hardsigmoid, lambda x: np.clip(x + 3, 0, 6) / 6),
    (isnan, np.isnan),
    (isinf, np.isinf),
    (isfinite, np.isfinite),
    (bitwise_not, np.invert),
    (logical_not, np.logical_not),
)
"""Operators, and their NumPy forms. Those of another's element, and of a range of numbers, have no row."""

OPERATORS = tuple(elementwise_row(function, numpy) for function, numpy in _NUMPY)
