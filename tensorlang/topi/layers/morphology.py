"""Dilations of images by shapes: the largest of what lies under them (Serra 1982)."""

from __future__ import annotations

from tensorlang import te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, binary
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import extents
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed
from tensorlang.topi.windows import Numbers, Padding, around, each


@checked
def dilation2d_nhwc(
    input: Tensor,
    filter: Tensor,
    stride: Numbers,
    padding: Padding,
    dilations: Numbers,
    out_dtype: str | None = None,
    name: str = "dilation2d_nhwc",
) -> Tensor:
    """Return `dilation2d_nchw` of NHWC images and shapes [h, w, c]: [n, rows, columns, c].

    >>> from tensorlang import te, topi
    >>> x, shape = te.placeholder((2, 8, 9, 3)), te.placeholder((2, 2, 3))
    >>> topi.image.dilation2d_nhwc(x, shape, 1, 0, 1).shape
    (2, 7, 8, 3)
    """
    return _dilated(input, filter, stride, padding, dilations, out_dtype, name, last=True)


@checked
def dilation2d_nchw(
    input: Tensor,
    filter: Tensor,
    stride: Numbers,
    padding: Padding,
    dilations: Numbers,
    out_dtype: str | None = None,
    name: str = "dilation2d_nchw",
) -> Tensor:
    """Return the largest sums of NCHW images and the shapes [c, h, w] over them: [n, c, rows, columns].

    `dilations` are the distances of neighbours under a shape, `stride` those of shapes. The padding is never the
    largest. DefinitionError for other shapes, dtypes that differ, and shapes that do not fit into images.

        >>> from tensorlang import te, topi
        >>> x, shape = te.placeholder((2, 3, 8, 9)), te.placeholder((3, 2, 2))
        >>> topi.image.dilation2d_nchw(x, shape, 1, 0, 1).shape
        (2, 3, 7, 8)
    """
    return _dilated(input, filter, stride, padding, dilations, out_dtype, name, last=False)


def _dilated(
    input: Tensor,
    filter: Tensor,
    stride: Numbers,
    padding: Padding,
    dilations: Numbers,
    out_dtype: str | None,
    name: str,
    last: bool,
) -> Tensor:
    """The dilation of images whose channels are the last axis, or before pixels."""
    axes = "[rows, columns, channels]" if last else "[channels, rows, columns]"
    wanted = f"{name} wants images and shapes {axes} of one dtype, got {input} and {filter}"
    if input.ndim != 4 or filter.ndim != 3 or input.dtype != filter.dtype:
        raise DefinitionError(wanted)
    (n, *rest), shape = extents(name, input), extents(name, filter)
    c, pixels = (rest[-1], rest[:-1]) if last else (rest[0], rest[1:])
    channels, sizes = (shape[-1], shape[:-1]) if last else (shape[0], shape[1:])
    steps, gaps = each(f"{name}: stride", stride, 2), each(f"{name}: dilations", dilations, 2)
    reach = [(k - 1) * g for k, g in zip(sizes, gaps, strict=True)]
    before, after = around(f"{name}: padding", padding, reach)
    counts = [(m + a + b - r - 1) // s + 1 for m, a, b, r, s in zip(pixels, before, after, reach, steps, strict=True)]
    if channels != c or min(sizes) < 1 or min(counts) < 1:
        raise DefinitionError(f"{wanted}: a shape for each channel, which fits into the image")
    dy, dx = (te.reduce_axis((0, k), w) for k, w in zip(sizes, ("dy", "dx"), strict=True))
    dtype = out_dtype or input.dtype

    def element(*index: Expr) -> Expr:
        b, f, (i, j) = (index[0], index[3], index[1:3]) if last else (index[0], index[1], index[2:])
        y, x = (at * s + k.var * g - a for at, s, k, g, a in zip((i, j), steps, (dy, dx), gaps, before, strict=True))
        inside = te.all(binary("ge", y, 0), binary("lt", y, pixels[0]), binary("ge", x, 0), binary("lt", x, pixels[1]))
        value = input(b, y, x, f) + filter(dy, dx, f) if last else input(b, f, y, x) + filter(f, dy, dx)
        return te.max(te.cast(value, dtype), axis=[dy, dx], where=inside)

    return computed((n, *counts, c) if last else (n, c, *counts), element, name)
