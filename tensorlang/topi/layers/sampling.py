"""Images sampled at the places of a grid, and the grids of affine maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, binary, cast
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import extents
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed, widened

_METHODS = {"nearest": (0,), "bilinear": (0, 1), "bicubic": (-1, 0, 1, 2)}
"""Pixels along a dimension that an element is made of, beside the one before its place."""
_PADDINGS = ("zeros", "border", "reflection")
_CUBIC = -0.75


@checked
def affine_grid(data: Tensor, target_shape: Sequence[int], name: str = "affine_grid") -> Tensor:
    """Return the grids [n, 2, *target_shape] to which matrices [n, 2, 3] take the points of an image, for grid_sample.

    Points are (x, y) from -1, the first column or row, to 1, the last one, as PyTorch has it with align_corners.
    DefinitionError for other shapes, integers, and target shapes that are not two numbers of at least 2.

        >>> from tensorlang import te, topi
        >>> topi.image.affine_grid(te.placeholder((5, 2, 3)), (8, 9)).shape
        (5, 2, 8, 9)
    """
    sizes = tuple(target_shape)
    if data.ndim != 3 or extents(name, data)[1:] != (2, 3) or not dtypes.info(data.dtype).is_float:
        raise DefinitionError(f"{name} wants matrices [n, 2, 3] of floats, got {data}")
    if len(sizes) != 2 or min(sizes) < 2:
        raise DefinitionError(f"{name} wants a target shape of two numbers of at least 2, got {list(sizes)}")

    def point(k: Expr, size: int) -> Expr:
        return cast(k, dtypes.at_least_float32(data.dtype)) * (2 / (size - 1)) - 1

    def element(n: Expr, d: Expr, y: Expr, x: Expr) -> Expr:
        right, down, moved = (widened(data(n, d, k)) for k in range(3))
        return cast(right * point(x, sizes[1]) + down * point(y, sizes[0]) + moved, data.dtype)

    return computed((data.shape[0], 2, *sizes), element, name)


@checked
def grid_sample(
    data: Tensor,
    grid: Tensor,
    method: str = "bilinear",
    layout: str = "NCHW",
    padding_mode: str = "zeros",
    align_corners: bool = True,
    name: str = "grid_sample",
) -> Tensor:
    """Return images at the places (x, y) that grids [n, 2, h, w] name, as PyTorch has it: [n, c, h, w].

    -1 is the first column or row, or its edge unless `align_corners`, and 1 the last one. Between pixels by linear or
    cubic interpolation (`bilinear`, `bicubic`), or the nearest one (`nearest`); outside there are `zeros`, pixels of
    the `border`, or the image mirrored there (`reflection`). NCDHW images have places (x, y, z) in grids [n, 3, d, h,
    w], and no cubic interpolation. DefinitionError for other shapes, dtypes and words.

        >>> from tensorlang import te, topi
        >>> x, grid = te.placeholder((2, 3, 8, 9)), te.placeholder((2, 2, 4, 5))
        >>> topi.image.grid_sample(x, grid, "bicubic", padding_mode="reflection").shape
        (2, 3, 4, 5)
    """
    rank = {"NCHW": 2, "NCDHW": 3}.get(layout, 0)
    is_known = method in _METHODS and padding_mode in _PADDINGS and (method != "bicubic" or rank == 2)
    if data.ndim != rank + 2 or grid.ndim != rank + 2 or not is_known:
        raise DefinitionError(
            f"{name} wants NCHW or NCDHW images, grids [n, 2, h, w] or [n, 3, d, h, w], bilinear, nearest or (of NCHW) "
            f"bicubic, zeros, border or reflection; got {data}, {grid}, {layout!r}, {method!r} and {padding_mode!r}"
        )
    (images, _, *pixels), (count, axes, *sizes) = extents(name, data), extents(name, grid)
    floats = dtypes.info(data.dtype).is_float and dtypes.info(grid.dtype).is_float
    if not floats or (count, axes) != (images, rank) or min(pixels) < 1:
        raise DefinitionError(f"{name} wants floats, and a grid [n, {rank}, ...] for each image; got {data} and {grid}")

    def at(d: int, n: Expr, *point: Expr) -> Expr:
        return grid(n, rank - 1 - d, *point)

    return sampled(data, at, sizes, method, padding_mode, align_corners, name)


def sampled(
    data: Tensor,
    at: Callable[..., Expr],
    sizes: Sequence[int],
    method: str,
    padding: str,
    corners: bool,
    name: str,
) -> Tensor:
    """Images of channels at places from -1 to 1: those along dimension d are `at(d, image, *point)`."""
    images, channels, *pixels = extents(name, data)
    wide = dtypes.at_least_float32(data.dtype)
    places = [
        computed(
            (images, *sizes),
            lambda *point, d=d, m=m: _place(widened(at(d, *point)), m, corners, "" if method == "bicubic" else padding),
            f"{name}_at{d}",
        )
        for d, m in enumerate(pixels)
    ]

    def element(n: Expr, c: Expr, *point: Expr) -> Expr:
        own = [place(n, *point) for place in places]
        firsts = [te.round(p) if method == "nearest" else te.floor(p) for p in own]
        parts = []
        for taps in product(_METHODS[method], repeat=len(pixels)):
            spots = [first + tap for first, tap in zip(firsts, taps, strict=True)]
            held = [_inside(s, m, padding, corners) for s, m in zip(spots, pixels, strict=True)]
            value = widened(data(n, c, *(cast(h, "int32") for h in held)))
            shares = [_share(p - s, method) for p, s in zip(own, spots, strict=True)] if method != "nearest" else []
            value = prod((cast(share, wide) for share in shares), start=value)
            if padding == "zeros":
                tests = [t for s, m in zip(spots, pixels, strict=True) for t in (s >= 0, s <= m - 1)]
                value = te.select(te.all(*tests), value, te.const(0, wide))
            parts.append(value)
        return cast(sum(parts[1:], start=parts[0]), data.dtype)

    return computed((images, channels, *sizes), element, name)


def _place(x: Expr, extent: int, corners: bool, padding: str) -> Expr:
    """A place in pixels, inside of the image where other pixels than zeros are outside."""
    x = (x + 1) * ((extent - 1) / 2) if corners else ((x + 1) * extent - 1) * 0.5
    return _inside(x, extent, padding, corners) if padding in ("border", "reflection") else x


def _inside(x: Expr, extent: int, padding: str, corners: bool) -> Expr:
    """A place in pixels brought back into an image; `reflection`: mirrored at its border as often as needed."""
    if padding == "reflection":
        low, span = (0.0, extent - 1.0) if corners else (-0.5, float(extent))
        if span > 0:
            turned = te.fmod(te.abs(x - low), te.const(2 * span, x.dtype))
            x = te.minimum(turned, 2 * span - turned) + low
    return te.maximum(te.minimum(x, te.const(extent - 1, x.dtype)), te.const(0, x.dtype))


def _share(distance: Expr, method: str) -> Expr:
    """The weight of a pixel by its distance: linear, or cubic (Keys, 1981)."""
    d, a = te.abs(distance), _CUBIC
    if method == "bilinear":
        return 1 - d
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return te.select(binary("lt", d, te.const(1, d.dtype)), near, te.select(d < 2, far, te.const(0, d.dtype)))
