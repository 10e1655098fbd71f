"""Images of another size: nearest, linear and cubic interpolation over one, two or three axes.

Coordinates are fractions of whole numbers, so places are floors of affine expressions, exact at any size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, as_expr, binary
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import Tensor
from tensorlang.topi.checked import checked, named
from tensorlang.topi.computed import computed

Taps = list[tuple[Expr, Expr | None]]
"""Places along an axis, and their weights; none where there is one place."""
_METHODS = {"nearest_neighbor": "nearest", "nearest": "nearest", "linear": "linear", "bilinear": "linear"} | {
    "trilinear": "linear",
    "cubic": "cubic",
    "bicubic": "cubic",
}


def _coordinate(i: Expr, have: int, want: int, mode: str) -> tuple[Expr, int]:
    """Where the centre of an element of the result is in the data: a numerator, and the denominator."""
    match mode:
        case "half_pixel":
            return i * (2 * have) + (have - want), 2 * want
        case "asymmetric":
            return i * have, want
        case "align_corners":
            return (i * (have - 1), want - 1) if want > 1 else (i * 0, 1)
    raise DefinitionError(f"coordinates are half_pixel, asymmetric or align_corners, got {mode!r}")


def _rounded(number: Expr, whole: int, how: str) -> Expr:
    """A fraction as a whole number."""
    match how:
        case "floor":
            return binary("floordiv", number, whole)
        case "ceil":
            return binary("floordiv", number + (whole - 1), whole)
        case "round_prefer_floor":
            return binary("floordiv", number * 2 + (whole - 1), 2 * whole)
        case "round" | "round_prefer_ceil":
            return binary("floordiv", number * 2 + whole, 2 * whole)
    wanted = "floor, ceil, round, round_prefer_floor or round_prefer_ceil"
    raise DefinitionError(f"the rounding of a nearest element is {wanted}, got {how!r}")


def _taps(i: Expr, have: int, want: int, method: str, mode: str, rounding: str, alpha: float, wide: str) -> Taps:
    """The places of the data that make an element of the result along one axis; those outside are those at the ends."""
    number, whole = _coordinate(i, have, want, mode)

    def place(at: Expr) -> Expr:
        return te.maximum(te.minimum(at, have - 1), 0)

    if method == "nearest":
        usual = "floor" if mode == "asymmetric" else "round"
        return [(place(_rounded(number, whole, rounding or usual)), None)]
    first = binary("floordiv", number, whole)
    t = te.cast(binary("floormod", number, whole), wide) / te.const(float(whole), wide)
    if method == "linear":
        return [(place(first), 1.0 - t), (place(first + 1), t)]
    near = [((alpha + 2.0) * x - (alpha + 3.0)) * x * x + 1.0 for x in (t, 1.0 - t)]
    far = [((alpha * x - 5.0 * alpha) * x + 8.0 * alpha) * x - 4.0 * alpha for x in (t + 1.0, 2.0 - t)]
    weights = [far[0], near[0], near[1], far[1]]
    return [(place(first + k - 1), weight) for k, weight in enumerate(weights)]


def _resized(
    operator: str,
    data: Tensor,
    size: Sequence[int],
    letters: str,
    layout: str,
    method: str,
    mode: str,
    rounding: str,
    alpha: float,
    out_dtype: str | None,
) -> Tensor:
    if sorted(layout) != sorted(f"NC{letters}") or data.ndim != len(layout):
        raise DefinitionError(f"{operator} wants a layout of the letters NC{letters}, and data of it; got {layout!r}")
    where = [layout.index(letter) for letter in letters]
    have = [extent_of(data.shape[d]) or 0 for d in where]
    if len(size) != len(where) or min(*size, *have) < 1 or method not in _METHODS:
        wanted = f"extents that are numbers, {len(where)} new ones, and a method of {', '.join(_METHODS)}"
        raise DefinitionError(f"{operator} wants {wanted}, got {data}, {list(size)} and {method!r}")
    chosen, dtype = _METHODS[method], out_dtype or data.dtype
    if chosen != "nearest" and not dtypes.info(data.dtype).is_float:
        raise DefinitionError(f"{operator}: {method} interpolation wants floats, got {data.dtype}; topi.cast them")
    wide = dtypes.at_least_float32(data.dtype)

    def element(*i: Expr) -> Expr:
        rows = zip(where, have, size, strict=True)
        along = [_taps(i[d], n, want, chosen, mode, rounding, alpha, wide) for d, n, want in rows]
        total: Expr | None = None
        for corner in product(*along):
            at: list[Expr] = list(i)
            weight: Expr | None = None
            for d, (place, part) in zip(where, corner, strict=True):
                at[d] = place
                weight = part if weight is None or part is None else weight * part
            value = data(*at) if weight is None else te.cast(data(*at), wide) * weight
            total = value if total is None else total + value
        return te.cast(as_expr(0) if total is None else total, dtype)

    shape = [size[where.index(d)] if d in where else n for d, n in enumerate(data.shape)]
    return computed(shape, element, operator)


def _operator(name: str, letters: str) -> Callable[..., Tensor]:
    """A resize over the axes of some letters."""

    def operator(
        data: Tensor,
        roi: Sequence[float] | None,
        size: Sequence[int],
        layout: str = f"NC{letters}",
        method: str = "linear",
        coordinate_transformation_mode: str = "half_pixel",
        rounding_method: str = "",
        bicubic_alpha: float = -0.5,
        out_dtype: str | None = None,
    ) -> Tensor:
        mode = coordinate_transformation_mode
        return _resized(name, data, size, letters, layout, method, mode, rounding_method, bicubic_alpha, out_dtype)

    doc = (
        f"Return `data` with `size` elements along {letters}, interpolated (nearest_neighbor, linear, cubic).\n\n"
        "An element at i lies at (i + 0.5) * old / new - 0.5 (half_pixel), i * old / new (asymmetric), or\n"
        "i * (old - 1) / (new - 1) (align_corners); what is outside is the element at the end. `roi` is not used.\n"
        "DefinitionError for other words, symbolic extents, and for interpolation of integers."
    )
    return named(name, doc, operator)


resize1d, resize2d, resize3d = _operator("resize1d", "W"), _operator("resize2d", "HW"), _operator("resize3d", "DHW")


@checked
def upsampling(
    data: Tensor,
    scale_h: float,
    scale_w: float,
    layout: str = "NCHW",
    method: str = "nearest_neighbor",
    align_corners: bool = False,
) -> Tensor:
    """Return images with so many times the rows and columns: `resize2d` in asymmetric coordinates, or align_corners.

    DefinitionError as for resize2d.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.upsampling, [[[[1.0, 2.0]]]], scale_h=1, scale_w=2).tolist()
        [[[[1.0, 1.0, 2.0, 2.0]]]]
    """
    if sorted(layout) != sorted("NCHW") or data.ndim != 4:
        raise DefinitionError(f"upsampling wants images and a layout of the letters NCHW, got {data} and {layout!r}")
    rows, columns = (extent_of(data.shape[layout.index(letter)]) or 0 for letter in "HW")
    if not (math.isfinite(scale_h) and math.isfinite(scale_w)):
        raise DefinitionError(f"upsampling takes finite scales, got {scale_h} and {scale_w}")
    size = (round(rows * scale_h), round(columns * scale_w))
    mode = "align_corners" if align_corners else "asymmetric"
    return _resized("upsampling", data, size, "HW", layout, method, mode, "", -0.5, None)
