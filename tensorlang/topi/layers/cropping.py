"""Boxes of images, brought to one size."""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, cast
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import extents, within
from tensorlang.topi.between import interpolated_or_zero
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed, widened
from tensorlang.topi.transform import transpose


@checked
def crop_and_resize(
    data: Tensor,
    boxes: Tensor,
    box_indices: Tensor,
    crop_size: Sequence[int],
    layout: str = "NCHW",
    method: str = "bilinear",
    extrapolation_value: float | None = None,
    out_dtype: str | None = None,
    name: str = "crop_and_resize",
) -> Tensor:
    """Return boxes of NCHW or NHWC images, brought to one size, as TensorFlow has it: [n, channels, *crop_size].

    `boxes` [n, 4]: top, left, bottom, right, where 0 is the first row or column and 1 the last one; `box_indices` [n]
    is the image of each. Between pixels by linear interpolation (`bilinear`), or the nearest one (`nearest_neighbor`);
    outside of the image there is `extrapolation_value` (0). DefinitionError for other shapes, dtypes and words.

        >>> from tensorlang import te, topi
        >>> x, boxes, at = te.placeholder((2, 3, 8, 9)), te.placeholder((5, 4)), te.placeholder((5,), "int32")
        >>> topi.image.crop_and_resize(x, boxes, at, (4, 4)).shape
        (5, 3, 4, 4)
    """
    words = layout in ("NCHW", "NHWC") and method in ("bilinear", "nearest_neighbor")
    if data.ndim != 4 or boxes.ndim != 2 or box_indices.ndim != 1 or not words:
        raise DefinitionError(
            f"{name} wants images, boxes [n, 4], an image for each, NCHW or NHWC, bilinear or nearest_neighbor; got "
            f"{data}, {boxes}, {box_indices}, {layout!r} and {method!r}"
        )
    if layout == "NHWC":
        moved = transpose(data, (0, 3, 1, 2), f"{name}_data")
        how = (crop_size, "NCHW", method, extrapolation_value, out_dtype)
        return transpose(crop_and_resize(moved, boxes, box_indices, *how, name=f"{name}_crops"), (0, 2, 3, 1), name)
    (images, channels, *pixels), (count, corners) = extents(name, data), extents(name, boxes)
    floats = dtypes.info(data.dtype).is_float and dtypes.info(boxes.dtype).is_float
    fits = corners == 4 and extents(name, box_indices) == (count,) and dtypes.info(box_indices.dtype).is_integer
    if not floats or not fits or len(crop_size) != 2 or min(crop_size) < 1:
        wanted = "floats, an image for each box [n, 4], and a size of two numbers of at least 1"
        raise DefinitionError(f"{name} wants {wanted}; got {data}, {boxes}, {box_indices} and {list(crop_size)}")
    dtype = out_dtype or data.dtype

    def place(d: int, r: Expr, k: Expr) -> Expr:
        low, high = (widened(boxes(r, side)) for side in (d, d + 2))
        last = te.const(pixels[d] - 1, low.dtype)
        if crop_size[d] == 1:
            return (low + high) / 2 * last
        return low * last + cast(k, low.dtype) * ((high - low) * last / (crop_size[d] - 1))

    at = [computed((count, crop_size[d]), lambda r, k, d=d: place(d, r, k), f"{name}_at{d}") for d in (0, 1)]

    def element(r: Expr, c: Expr, y: Expr, x: Expr) -> Expr:
        places = [at[0](r, y), at[1](r, x)]
        inside = [t for p, n in zip(places, pixels, strict=True) for t in (p >= 0.0, p <= te.const(n - 1, p.dtype))]
        if method == "nearest_neighbor":
            places = [te.round(p) for p in places]
        value = interpolated_or_zero(data, within(box_indices(r), images), c, places, pixels)
        outside = te.const(extrapolation_value or 0.0, value.dtype)
        return cast(te.if_then_else(te.all(*inside), value, outside), dtype)

    return computed((count, channels, *crop_size), element, name)
