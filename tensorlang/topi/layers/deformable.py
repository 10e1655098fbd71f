"""Convolutions of images that are read at places which data move (Dai et al. 2017)."""

from __future__ import annotations

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, binary, cast
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import extents
from tensorlang.topi.between import interpolated_or_zero
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed, rounded_once, widened
from tensorlang.topi.transform import transpose
from tensorlang.topi.windows import Padding, Pair, windows


@checked
def deformable_conv2d_nchw(
    data: Tensor,
    offset: Tensor,
    kernel: Tensor,
    strides: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    deformable_groups: int = 1,
    groups: int = 1,
    out_dtype: str | None = None,
    name: str = "deformable_conv2d_nchw",
) -> Tensor:
    """Return the convolution of NCHW data, each element of a window read where an offset moves it, with OIHW weights.

    `offset` [n, deformable_groups * kh * kw * 2, rows, columns]: how far down and to the right of its place in the
    window an element is read, between pixels by linear interpolation, 0 outside. Channels share offsets in
    `deformable_groups`, and may be in `groups`. DefinitionError where the shapes do not fit.

        >>> from tensorlang import te, topi
        >>> x, moves, w = te.placeholder((1, 4, 8, 8)), te.placeholder((1, 18, 8, 8)), te.placeholder((6, 4, 3, 3))
        >>> topi.nn.deformable_conv2d_nchw(x, moves, w, 1, 1).shape
        (1, 6, 8, 8)
    """
    tensors = (data, offset, kernel)
    if any(t.ndim != 4 or not dtypes.info(t.dtype).is_float for t in tensors) or min(groups, deformable_groups) < 1:
        raise DefinitionError(f"{name} wants data, offsets and weights of 4 dimensions of floats, got {list(tensors)}")
    (n, channels, *pixels), (images, moves, *places), (outputs, inputs, *size) = (extents(name, t) for t in tensors)
    slides = windows(size, strides, padding, dilation)
    counts = [w.number(extent) for extent, w in zip(pixels, slides, strict=True)]
    area = size[0] * size[1]
    fits = (images, moves, places) == (n, deformable_groups * area * 2, counts) and inputs * groups == channels
    if not fits or outputs % groups or channels % deformable_groups:
        wanted = f"offsets ({n}, {deformable_groups * area * 2}, {counts[0]}, {counts[1]}) and fitting weights"
        raise DefinitionError(f"{name} of {data} wants {wanted}; got {offset} and {kernel}")
    share = max(channels // deformable_groups, 1)

    def read(b: Expr, c: Expr, kh: Expr, kw: Expr, y: Expr, x: Expr) -> Expr:
        first = binary("floordiv", c, share) * (area * 2) + (kh * size[1] + kw) * 2
        at = [
            cast(w.at(place, k), dtypes.at_least_float32(offset.dtype)) + widened(offset(b, first + d, y, x))
            for d, (w, place, k) in enumerate(zip(slides, (y, x), (kh, kw), strict=True))
        ]
        return interpolated_or_zero(data, b, c, at, pixels)

    moved = computed((n, channels, *size, *counts), read, f"{name}_moved")
    rc, ry, rx = (
        te.reduce_axis((0, extent), word) for extent, word in ((inputs, "rc"), (size[0], "ry"), (size[1], "rx"))
    )
    each = max(outputs // groups, 1)

    def sums(name: str, dtype: str) -> Tensor:
        def element(b: Expr, f: Expr, y: Expr, x: Expr) -> Expr:
            c = rc.var if groups == 1 else binary("floordiv", f, each) * inputs + rc.var
            product = cast(moved(b, c, ry, rx, y, x), dtype) * cast(kernel(f, rc, ry, rx), dtype)
            return te.sum(product, axis=[rc, ry, rx])

        return computed((n, outputs, *counts), element, name)

    return rounded_once(name, out_dtype or data.dtype, sums)


@checked
def deformable_conv2d_nhwc(
    data: Tensor,
    offset: Tensor,
    kernel: Tensor,
    strides: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    deformable_groups: int = 1,
    groups: int = 1,
    out_dtype: str | None = None,
    name: str = "deformable_conv2d_nhwc",
) -> Tensor:
    """Return `deformable_conv2d_nchw` of NHWC data, offsets [n, rows, columns, moves] and HWIO weights.

    >>> from tensorlang import te, topi
    >>> data, moves = te.placeholder((1, 5, 5, 2)), te.placeholder((1, 3, 3, 18))
    >>> topi.deformable_conv2d_nhwc(data, moves, te.placeholder((3, 3, 2, 4))).shape
    (1, 3, 3, 4)
    """
    if any(t.ndim != 4 for t in (data, offset, kernel)):
        raise DefinitionError(f"{name} wants data, offsets and weights of 4 dimensions, got {[data, offset, kernel]}")
    images, moves = (transpose(t, (0, 3, 1, 2), f"{name}_{word}") for t, word in ((data, "data"), (offset, "moves")))
    weight = transpose(kernel, (3, 2, 0, 1), f"{name}_weight")
    made = deformable_conv2d_nchw(
        images, moves, weight, strides, padding, dilation, deformable_groups, groups, out_dtype, f"{name}_conv"
    )
    return transpose(made, (0, 2, 3, 1), name)
