"""Rotary position embedding: pairs of elements of each head, turned by angles that grow with the position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError, shown
from tensorlang.ir.expr import Expr, cast
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import Tensor
from tensorlang.topi.checked import checked

Array = npt.NDArray[Any]


@checked
def rope(
    data: Tensor, positions: Tensor, cosines: Tensor, sines: Tensor, interleaved: bool = False, name: str = "rope"
) -> Tensor:
    """Return `data` [batch, heads, n, d] with pairs of elements turned by the angles of their tokens' positions.

    `positions` int32[batch, n]; `cosines` and `sines` [most, half]: those of each position (`rope_tables`); a position
    beyond is brought to the nearest. Pair i is the elements i and half + i, or 2 i and 2 i + 1 if `interleaved`;
    elements from 2 half on stay. Computed in float32 at least. DefinitionError where shapes or dtypes do not fit.

    Source: J. Su et al., RoFormer: Enhanced Transformer with Rotary Position Embedding, 2021.

        >>> from tensorlang import te, topi
        >>> cosines, sines = topi.rope_tables(8, 1)
        >>> te.evaluate(topi.rope, [[[[1.0, 0.0]]]], [[0]], cosines, sines).tolist()
        [[[[1.0, 0.0]]]]
    """
    half = extent_of(cosines.shape[-1]) or 0
    width, most = extent_of(data.shape[-1]), extent_of(cosines.shape[0])
    fits = (
        data.ndim == 4
        and positions.ndim == cosines.ndim == sines.ndim == 2
        and positions.dtype == "int32"
        and cosines.dtype == sines.dtype
        and dtypes.info(data.dtype).is_float
        and dtypes.info(cosines.dtype).is_float
        and [extent_of(e) for e in cosines.shape] == [extent_of(e) for e in sines.shape]
        and [extent_of(e) for e in positions.shape] == [extent_of(data.shape[d]) for d in (0, 2)]
        and bool(half and width and most and 2 * half <= width)
    )
    if not fits:
        wanted = "data[batch, heads, n, d], positions int32[batch, n], cosines and sines [most, half], 2 half up to d"
        raise DefinitionError(f"{name} wants {wanted}, got {data}, {positions}, {cosines} and {sines}")
    wide = dtypes.promote(data.dtype, "float32")

    def element(b: Expr, h: Expr, i: Expr, j: Expr) -> Expr:
        at = te.max(te.min(positions(b, i), (most or 1) - 1), 0)

        def turned(first: Expr, second: Expr, pair: Expr, is_first: bool) -> Expr:
            x, y = (cast(data(b, h, i, k), wide) for k in (first, second))
            c, s = (cast(table(at, pair), wide) for table in (cosines, sines))
            return cast(x * c - y * s if is_first else x * s + y * c, data.dtype)

        if interleaved:
            pair = te.floordiv(j, 2)
            two = [turned(2 * pair, 2 * pair + 1, pair, is_first) for is_first in (True, False)]
            made = te.if_then_else(te.floormod(j, 2) < 1, *two)
        else:
            made = te.if_then_else(j < half, turned(j, j + half, j, True), turned(j - half, j, j - half, False))
        return made if 2 * half == width else te.if_then_else(j < 2 * half, made, data(b, h, i, j))

    made: Tensor = te.compute(data.shape, element, name=name)
    return made


@checked
def rope_tables(
    most: int, half: int, base: float = 10000.0, factors: Sequence[float] | np.ndarray | None = None
) -> tuple[Array, Array]:
    """Cosines and sines float32[most, half] of `position * base ** (-i / half)`, each divided by a factor if given.

    `factors`: `half` numbers. DefinitionError unless all of them, `most`, `half` and `base` are greater than 0.

        >>> from tensorlang import topi
        >>> cosines, sines = topi.rope_tables(2, 1)
        >>> sines.round(3).tolist()
        [[0.0], [0.8410000205039978]]
    """
    if most < 1 or half < 1 or not base > 0:
        raise DefinitionError(f"rope_tables takes numbers greater than 0, got most={most}, half={half}, base={base}")
    apart = np.ones(half) if factors is None else _numbers(factors)
    if apart.shape != (half,) or not (apart > 0).all():
        raise DefinitionError(f"rope_tables takes {half} factors greater than 0, got {shown(factors)}")
    turns = base ** (-np.arange(half) / half) / apart
    angles = np.arange(most)[:, None] * turns
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def _numbers(given: Any) -> Array:
    try:
        return np.asarray(given, np.float64)
    except (TypeError, ValueError):
        return np.empty(0)


def rope_reference(data: Array, positions: Array, cosines: Array, sines: Array, interleaved: bool = False) -> Array:
    """The same by complex numbers, in float64."""
    half, made = cosines.shape[1], data.astype(np.float64)
    turn = (cosines.astype(np.float64) + 1j * sines)[np.clip(positions, 0, len(cosines) - 1)][:, None]
    first, second = (
        (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (slice(0, half), slice(half, 2 * half))
    )
    turned = (made[..., first] + 1j * made[..., second]) * turn
    made[..., first], made[..., second] = turned.real, turned.imag
    return made
