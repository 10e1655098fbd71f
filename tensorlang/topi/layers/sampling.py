"""Images sampled at the places of a grid, and the grids of affine maps."""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, binary, cast
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import extents, within
from tensorlang.topi.between import inside, interpolated
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed


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
        return cast(k, data.dtype) * (2 / (size - 1)) - 1

    def element(n: Expr, d: Expr, y: Expr, x: Expr) -> Expr:
        return data(n, d, 0) * point(x, sizes[1]) + data(n, d, 1) * point(y, sizes[0]) + data(n, d, 2)

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
    """Return NCHW images at the places (x, y) that grids [n, 2, h, w] name, as PyTorch has it: [n, c, h, w].

    -1 is the first column or row, or its edge unless `align_corners`, and 1 the last one. Between pixels by linear
    interpolation (`bilinear`), or the nearest one (`nearest`); outside there are `zeros`, or pixels of the `border`.
    DefinitionError for other shapes, dtypes and words.

        >>> from tensorlang import te, topi
        >>> x, grid = te.placeholder((2, 3, 8, 9)), te.placeholder((2, 2, 4, 5))
        >>> topi.image.grid_sample(x, grid).shape
        (2, 3, 4, 5)
    """
    words = layout == "NCHW" and method in ("bilinear", "nearest") and padding_mode in ("zeros", "border")
    if data.ndim != 4 or grid.ndim != 4 or not words:
        raise DefinitionError(
            f"{name} wants NCHW images, grids [n, 2, h, w], bilinear or nearest, zeros or border; got {data}, {grid}, "
            f"{layout!r}, {method!r} and {padding_mode!r}"
        )
    (images, channels, *pixels), (count, two, *sizes) = extents(name, data), extents(name, grid)
    floats = dtypes.info(data.dtype).is_float and dtypes.info(grid.dtype).is_float
    if not floats or (count, two) != (images, 2) or min(pixels) < 1:
        raise DefinitionError(f"{name} wants floats, and a grid [n, 2, h, w] for each image; got {data} and {grid}")

    def place(n: Expr, d: int, y: Expr, x: Expr) -> Expr:
        at, extent = grid(n, 1 - d, y, x) + 1, pixels[d]
        found = at * ((extent - 1) / 2) if align_corners else at * (extent / 2) - 0.5
        return te.round(found) if method == "nearest" else found

    def tap(n: Expr, c: Expr, y: Expr, x: Expr) -> Expr:
        tests = [t for k, m in zip((y, x), pixels, strict=True) for t in (binary("ge", k, 0), binary("lt", k, m))]
        return te.if_then_else(te.all(*tests), data(n, c, within(y, pixels[0]), within(x, pixels[1])), 0.0)

    def element(n: Expr, c: Expr, y: Expr, x: Expr) -> Expr:
        places = [place(n, d, y, x) for d in (0, 1)]
        if padding_mode == "border":
            return interpolated(data, n, c, [inside(p, m) for p, m in zip(places, pixels, strict=True)], pixels)
        around = []
        for p, m in zip(places, pixels, strict=True):
            held = te.maximum(te.minimum(p, te.const(m, p.dtype)), te.const(-1, p.dtype))
            low = te.floor(held)
            first = cast(low, "int32")
            around.append([(first, 1 - (held - low)), (first + 1, held - low)])
        parts = [tap(n, c, i, j) * cast(p * q, data.dtype) for i, p in around[0] for j, q in around[1]]
        return sum(parts[1:], start=parts[0])

    return computed((images, channels, *sizes), element, name)
