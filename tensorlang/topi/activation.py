"""Functions of one element: activations and mathematics. They are plain stages, so they join whatever they follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir import numpy_math
from tensorlang.ir.expr import Const, Expr, ExprLike, as_expr
from tensorlang.te.operation import Tensor
from tensorlang.topi.checked import checked
from tensorlang.topi.operator import Operator

Array = npt.NDArray[Any]
_ROOT_OF_HALF = 0.5**0.5


def elementwise(x: Tensor, function: Callable[[Expr], Expr], name: str) -> Tensor:
    """A tensor of the same shape, each element made by a function; narrow floats go through it as float32.

    It has the dtype of `x`, but for what narrow floats are not rounded to: a function that tests them makes bool.
    """
    info = dtypes.info(x.dtype)
    half = info.is_narrow_float

    def element(*i: Expr) -> Expr:
        made = function(x(*i).astype("float32") if half else x(*i))
        return made.astype(x.dtype) if half and made.dtype != "bool" else made

    made = te.compute(x.shape, element, name=name)
    assert isinstance(made, Tensor)
    return made


def _of_floats(x: Tensor, function: Callable[[Expr], Expr], name: str) -> Tensor:
    if not dtypes.info(x.dtype).is_float:
        raise DefinitionError(f"{name} wants floats, got {x.dtype}; topi.cast the tensor first")
    return elementwise(x, function, name)


@checked
def relu(x: Tensor, name: str = "relu") -> Tensor:
    """Return `max(x, 0)`.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.relu, [-1.5, 0.5])
    array([0. , 0.5], dtype=float32)
    """
    return elementwise(x, lambda v: te.maximum(v, 0), name)


@checked
def leaky_relu(x: Tensor, alpha: ExprLike, name: str = "leaky_relu") -> Tensor:
    """Return `x` where it is positive, `alpha * x` elsewhere; `x` of floats.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.leaky_relu, [-2.0, 2.0], alpha=0.1)
    array([-0.2,  2. ], dtype=float32)
    """
    return _of_floats(x, lambda v: te.select(v > 0.0, v, v * alpha), name)


@checked
def gelu(x: Tensor, name: str = "gelu") -> Tensor:
    """Return `x * Phi(x)`, Phi being the distribution function of the normal distribution, by erf; `x` of floats.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.gelu, [-1.5, 0.5]).round(4)
    array([-0.1002,  0.3457], dtype=float32)
    """
    return _of_floats(x, lambda v: v * 0.5 * (te.erf(v * _ROOT_OF_HALF) + 1.0), name)


@checked
def silu(x: Tensor, name: str = "silu") -> Tensor:
    """Return `x * sigmoid(x)`; `x` of floats.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.silu, [-1.5, 0.5]).round(4)
    array([-0.2736,  0.3112], dtype=float32)
    """
    return _of_floats(x, lambda v: v * te.sigmoid(v), name)


@checked
def sigmoid(x: Tensor, name: str = "sigmoid") -> Tensor:
    """Return `1 / (1 + exp(-x))`; `x` of floats.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.sigmoid, [-1.5, 0.5]).round(4)
    array([0.1824, 0.6225], dtype=float32)
    """
    return _of_floats(x, te.sigmoid, name)


@checked
def tanh(x: Tensor, name: str = "tanh") -> Tensor:
    """Return the hyperbolic tangent; `x` of floats.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.tanh, [-1.5, 0.5]).round(4)
    array([-0.9051,  0.4621], dtype=float32)
    """
    return _of_floats(x, te.tanh, name)


@checked
def exp(x: Tensor, name: str = "exp") -> Tensor:
    """Return e to the power `x`; `x` of floats.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.exp, [-1.5, 0.5]).round(4)
    array([0.2231, 1.6487], dtype=float32)
    """
    return _of_floats(x, te.exp, name)


@checked
def log(x: Tensor, name: str = "log") -> Tensor:
    """Return the natural logarithm; `x` of floats.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.log, [1.0, 8.0]).round(4)
    array([0.    , 2.0794], dtype=float32)
    """
    return _of_floats(x, te.log, name)


@checked
def erf(x: Tensor, name: str = "erf") -> Tensor:
    """Return the error function; `x` of floats.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.erf, [-1.5, 0.5]).round(4)
    array([-0.9661,  0.5205], dtype=float32)
    """
    return _of_floats(x, te.erf, name)


@checked
def sqrt(x: Tensor, name: str = "sqrt") -> Tensor:
    """Return the square root; `x` of floats.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.sqrt, [4.0, 9.0])
    array([2., 3.], dtype=float32)
    """
    return _of_floats(x, te.sqrt, name)


@checked
def rsqrt(x: Tensor, name: str = "rsqrt") -> Tensor:
    """Return `1 / sqrt(x)`; `x` of floats.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.rsqrt, [4.0, 16.0])
    array([0.5 , 0.25], dtype=float32)
    """
    return _of_floats(x, te.rsqrt, name)


@checked
def clip(x: Tensor, a_min: ExprLike, a_max: ExprLike, name: str = "clip") -> Tensor:
    """Return `x` limited to `a_min` below and `a_max` above; bounds take the dtype of `x`.

    DefinitionError for a bound of integers that is none.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.clip, [-3.0, 0.5, 3.0], a_min=-1, a_max=1)
        array([-1. ,  0.5,  1. ], dtype=float32)
    """
    low, high = _bound(x, a_min), _bound(x, a_max)
    return elementwise(x, lambda v: te.maximum(te.minimum(v, te.cast(high, v.dtype)), te.cast(low, v.dtype)), name)


def _bound(x: Tensor, value: ExprLike) -> Expr:
    """A bound in the dtype of a tensor: a number beyond its range bounds nothing."""
    number = as_expr(value)
    if not isinstance(number, Const) or not dtypes.info(x.dtype).is_integer:
        return number
    low, high = dtypes.limits(x.dtype)
    return te.const(min(max(number.value, low), high), x.dtype)


@checked
def cast(x: Tensor, dtype: str, name: str = "cast") -> Tensor:
    """Return `x` in another dtype.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.cast, [1.7, -1.7], dtype="int32")
    array([ 1, -1], dtype=int32)
    """
    wanted = dtypes.canonical(dtype)
    made = te.compute(x.shape, lambda *i: x(*i).astype(wanted), name=name)
    assert isinstance(made, Tensor)
    return made


def _gelu_numpy(x: Array) -> Array:
    made: Array = x * 0.5 * (numpy_math.erf(x * x.dtype.type(_ROOT_OF_HALF)) + 1)
    return made


def _silu_numpy(x: Array) -> Array:
    made: Array = x / (1 + np.exp(-x))
    return made


_TABLE: tuple[tuple[Callable[[Tensor], Tensor], Callable[[Array], Array]], ...] = (
    (relu, lambda x: np.maximum(x, 0)),
    (gelu, _gelu_numpy),
    (silu, _silu_numpy),
    (sigmoid, numpy_math.sigmoid),
    (tanh, np.tanh),
    (exp, np.exp),
    (log, np.log),
    (erf, numpy_math.erf),
    (sqrt, np.sqrt),
    (rsqrt, numpy_math.rsqrt),
)
"""Functions without parameters, and their NumPy forms."""


def elementwise_row(function: Callable[..., Tensor], numpy: Callable[[Array], Array]) -> Operator:
    """The operator of a function of one element."""

    def compute(n: int, m: int, dtype: str = "float32") -> list[Tensor]:
        x = te.placeholder((n, m), name="X", dtype=dtype)
        return [x, function(x)]

    def reference(x: Array) -> list[Array]:
        """Of floats in float64."""
        exact = x.astype(np.float64) if dtypes.info(dtypes.canonical(x.dtype)).is_float else x
        with np.errstate(all="ignore"):
            made = numpy(exact)
        return [made if made.dtype == bool else made.astype(x.dtype)]

    def competitor(x: Array, out: Array) -> None:
        with np.errstate(all="ignore"):
            out[...] = numpy(x)

    return Operator(function.__name__, ("N", "M"), compute, reference, competitor)


OPERATORS = tuple(elementwise_row(function, numpy) for function, numpy in _TABLE)
