"""The way back from 32-bit sums to bytes: times a scale, in float32 or in whole numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError, shown
from tensorlang.ir.expr import Expr, as_expr, cast, same
from tensorlang.te.fixed_point import q_multiply_shift, q_multiply_shift_per_axis
from tensorlang.te.operation import Tensor
from tensorlang.topi.checked import checked

_BITS = 31
"""Of a multiplier, which lies between 2^30 and 2^31."""
_FURTHEST = 62
"""Sums of 31 bits times multipliers of 31 bits leave room in 64 bits to round at this one."""


@checked
def requantize(
    data: Tensor,
    scale: Tensor | float,
    zero_point: Tensor | int = 0,
    dtype: str = "int8",
    axis: int = -1,
    name: str = "requantized",
    shift: Tensor | int | None = None,
) -> Tensor:
    """Return `clip(round(data * scale) + zero_point)` as int8 or uint8, of int32 sums.

    `scale`, `zero_point`: one number, or a vector with one for each index of `axis` (a channel). The product is one of
    float32, rounded to the nearest integer, halves to even. With `shift`, a number from 1 to 62 or a vector of such, it
    is the whole number `data * scale / 2^shift`, halves rounded up, and `scale` is of int32 (`fixed_point` gives both).
    What does not fit in `dtype` becomes its nearest value. DefinitionError when dtypes or shapes do not fit.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.requantize, [100, -100, 1000], scale=0.1)
        array([ 10, -10, 100], dtype=int8)
    """
    if dtypes.info(dtype).bits != 8 or dtype == "bool" or not dtypes.info(data.dtype).is_integer:
        raise DefinitionError(f"{name} makes int8 or uint8 of integers, got {dtype} and {data}")
    if not -data.ndim <= axis < data.ndim:
        raise DefinitionError(f"{name}: {data} has no axis {axis}")
    channel = axis % data.ndim
    for vector in (scale, zero_point, shift):
        if isinstance(vector, Tensor) and not (vector.ndim == 1 and same(vector.shape[0], data.shape[channel])):
            raise DefinitionError(f"{name} wants a number, or one for each of {data.shape[channel]} channels: {vector}")
    low, high = dtypes.limits(dtype)

    def at(x: Tensor | float, index: Sequence[Expr]) -> Expr:
        value: Expr = x[index[channel]] if isinstance(x, Tensor) else as_expr(x)
        return value

    def element(*index: Expr) -> Expr:
        moved = te.round(cast(data[index], "float32") * cast(at(scale, index), "float32"))
        moved = moved + cast(at(zero_point, index), "float32")
        return cast(te.max(te.min(moved, float(high)), float(low)), dtype)

    def whole_element(*index: Expr) -> Expr:
        places = cast(at(as_given, index), "int64")
        product = cast(data[index], "int64") * cast(at(scale, index), "int64")
        half = te.const(1, "int64") << (places - 1)
        moved = ((product + half) >> places) + cast(at(zero_point, index), "int64")
        return cast(te.max(te.min(moved, int(high)), int(low)), dtype)

    if shift is None:
        return _computed(data, element, name)
    as_given = shift
    _check_fixed(scale, shift, name)
    return _computed(data, whole_element, name)


@checked
def fixed_point_multiply(x: Tensor, multiplier: int, shift: int, name: str = "fixed_point_multiply") -> Tensor:
    """Return `x * multiplier * 2**(shift - 31)` of int32, rounded to the nearest integer, halves up.

    DefinitionError for other dtypes and for shifts that 64 bits have no room for.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.fixed_point_multiply, [100, -3], multiplier=1 << 30, shift=-1)
        array([25, -1], dtype=int32)
    """
    if x.dtype != "int32" or not -31 < shift < 32:
        raise DefinitionError(f"{name} wants int32 and a shift from -30 to 31, got {x} and {shift}")
    return _computed(x, lambda *i: q_multiply_shift(x(*i), multiplier, _BITS, shift), name)


@checked
def fixed_point_multiply_per_axis(
    x: Tensor,
    y: Tensor,
    lshift: Tensor,
    rshift: Tensor,
    is_lshift_required: int,
    is_rshift_required: int,
    axes: Sequence[int],
    name: str = "fixed_point_multiply_per_axis",
) -> Tensor:
    """Return `x * 2**lshift * y * 2**(-31 - rshift)` of int32, the factors by the places along some axes.

    Shifts count where they are required, which is the same for all. DefinitionError for other dtypes and shapes.

        >>> from tensorlang import te, topi
        >>> def scaled(x, y, left, right):
        ...     return topi.fixed_point_multiply_per_axis(x, y, left, right, 1, 0, [1])
        >>> te.evaluate(scaled, [[100, 100]], [1 << 30, 1 << 29], [0, 1], [0, 0])
        array([[50, 50]], dtype=int32)
    """
    shape = [x.shape[axis] for axis in axes if -x.ndim <= axis < x.ndim]
    factors = (y, lshift, rshift)
    fits = len(shape) == len(axes) and all(f.ndim == len(shape) and all(map(same, f.shape, shape)) for f in factors)
    if not fits or {x.dtype, *(f.dtype for f in factors)} != {"int32"}:
        raise DefinitionError(f"{name} wants int32, and factors in the shape of axes {list(axes)} of {x}: {factors}")

    def element(*i: Expr) -> Expr:
        multiplier, left, right = (f(*(i[axis] for axis in axes)) for f in factors)
        required = bool(is_lshift_required), bool(is_rshift_required)
        return q_multiply_shift_per_axis(x(*i), multiplier, left, right, _BITS, *required)

    return _computed(x, element, name)


def fixed_point(scale: npt.ArrayLike) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return multipliers and shifts for `requantize` whose quotient is nearest to scales.

    DefinitionError for scales that are not positive, or not between 2^-31 and 2^30.

        >>> from tensorlang import topi
        >>> multiplier, shift = topi.fixed_point(0.25)
        >>> int(multiplier), int(shift)
        (1073741824, 32)
    """
    try:
        exact = np.asarray(scale, np.float64)
    except (TypeError, ValueError):
        raise DefinitionError(f"fixed_point takes numbers, got {type(scale).__name__} {shown(scale)}") from None
    if not ((exact >= 2.0 ** (_BITS - _FURTHEST)) & (exact < 2.0 ** (_BITS - 1))).all():
        raise DefinitionError(f"fixed_point takes scales from 2^-31 to 2^30, got {scale!r}")
    mantissa, exponent = np.frexp(exact)
    multiplier = np.rint(mantissa * 2.0**_BITS)
    carried = multiplier == 2.0**_BITS
    multiplier, exponent = np.where(carried, multiplier / 2, multiplier), exponent + carried
    return multiplier.astype(np.int32), (_BITS - exponent).astype(np.int32)


def requantize_reference(sums: npt.NDArray[Any], scale: npt.NDArray[Any], dtype: str = "int8") -> npt.NDArray[Any]:
    """Integers times scales in float32, for each index of the last axis, as bytes."""
    low, high = dtypes.limits(dtype)
    made: npt.NDArray[Any] = np.clip(np.rint(sums.astype(np.float32) * scale), low, high).astype(dtype)
    return made


def _check_fixed(scale: Tensor | float, shift: Tensor | int, name: str) -> None:
    if (scale.dtype != "int32") if isinstance(scale, Tensor) else not isinstance(scale, int):
        raise DefinitionError(f"{name}: with a shift the scale is a whole number, or int32, got {scale}")
    if isinstance(shift, int) and not 1 <= shift <= _FURTHEST:
        raise DefinitionError(f"{name}: a shift is a number from 1 to {_FURTHEST}, got {shift}")
    if isinstance(shift, Tensor) and not dtypes.info(shift.dtype).is_integer:
        raise DefinitionError(f"{name}: shifts are integers, got {shift}")


def _computed(data: Tensor, element: Any, name: str) -> Tensor:
    made: Tensor = te.compute(data.shape, element, name=name)
    return made
