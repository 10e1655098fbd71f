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
    wanted = f"{name} wants images and shapes [channels, rows, columns] of one dtype, got {input} and {filter}"
    if input.ndim != 4 or filter.ndim != 3 or input.dtype != filter.dtype:
        raise DefinitionError(wanted)
    (n, c, *pixels), (channels, *sizes) = extents(name, input), extents(name, filter)
    steps, gaps = each(f"{name}: stride", stride, 2), each(f"{name}: dilations", dilations, 2)
    reach = [(k - 1) * g for k, g in zip(sizes, gaps, strict=True)]
    before, after = around(f"{name}: padding", padding, reach)
    counts = [(m + a + b - r - 1) // s + 1 for m, a, b, r, s in zip(pixels, before, after, reach, steps, strict=True)]
    if channels != c or min(sizes) < 1 or min(counts) < 1:
        raise DefinitionError(f"{wanted}: a shape for each channel, which fits into the image")
    dy, dx = (te.reduce_axis((0, k), w) for k, w in zip(sizes, ("dy", "dx"), strict=True))
    dtype = out_dtype or input.dtype

    def element(b: Expr, f: Expr, i: Expr, j: Expr) -> Expr:
        y, x = (at * s + k.var * g - a for at, s, k, g, a in zip((i, j), steps, (dy, dx), gaps, before, strict=True))
        inside = te.all(binary("ge", y, 0), binary("lt", y, pixels[0]), binary("ge", x, 0), binary("lt", x, pixels[1]))
        return te.max(te.cast(input(b, f, y, x) + filter(f, dy, dx), dtype), axis=[dy, dx], where=inside)

    return computed((n, c, *counts), element, name)
