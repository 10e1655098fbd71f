"""Values of images between their pixels, by linear interpolation."""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang import te
from tensorlang.ir.expr import Expr, binary, cast
from tensorlang.te.operation import Tensor
from tensorlang.topi.computed import widened


def inside(place: Expr, extent: int) -> Expr:
    """A place along a dimension, brought to the nearest one inside of the image."""
    return te.maximum(te.minimum(place, te.const(extent - 1, place.dtype)), te.const(0, place.dtype))


def interpolated(data: Tensor, image: Expr, channel: Expr, at: Sequence[Expr], pixels: Sequence[int]) -> Expr:
    """The value at a place (row, column) inside of an image of NCHW data; of half precision in float32.

    Places are in float32 at least: in half precision neighbours beyond a few hundred pixels are the same.
    """
    down, right = (_around(place, extent) for place, extent in zip(at, pixels, strict=True))
    pixel = [(widened(data(image, channel, y, x)), p * q) for y, p in down for x, q in right]
    parts = [value * cast(share, value.dtype) for value, share in pixel]
    return sum(parts[1:], start=parts[0])


def interpolated_or_zero(data: Tensor, image: Expr, channel: Expr, at: Sequence[Expr], pixels: Sequence[int]) -> Expr:
    """The value at a place, as `interpolated`, 0 outside of the image."""
    tests: list[Expr] = []
    for place, extent in zip(at, pixels, strict=True):
        tests += [binary("ge", place, te.const(0, place.dtype)), binary("lt", place, te.const(extent, place.dtype))]
    near = [inside(place, extent) for place, extent in zip(at, pixels, strict=True)]
    value = interpolated(data, image, channel, near, pixels)
    return te.if_then_else(te.all(*tests), value, te.const(0, value.dtype))


def _around(place: Expr, extent: int) -> list[tuple[Expr, Expr]]:
    """The pixels before and behind a place along a dimension, with their shares."""
    low = te.floor(place)
    share, before = place - low, cast(low, "int32")
    return [(before, te.const(1, place.dtype) - share), (te.minimum(before + 1, extent - 1), share)]
