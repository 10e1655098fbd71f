"""Regions of images, brought to one size: ROI align and ROI pool.

Both are separable: what the rows of a cell take is decided once for each region, and what its columns take, so that an
average over samples is two small products, and a maximum one after the other. So their number may depend on the region.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensorlang import dtypes, te
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, ExprLike, binary, cast
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import extents
from tensorlang.topi.between import inside, interpolated
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed, rounded_once, widened
from tensorlang.topi.transform import transpose

_MODES = {0: "avg", 1: "max", b"avg": "avg", b"max": "max", "avg": "avg", "max": "max"}


@checked
def roi_align_nchw(
    data: Tensor,
    rois: Tensor,
    pooled_size: int | Sequence[int],
    spatial_scale: float,
    mode: int | str | bytes = "avg",
    sample_ratio: int = -1,
    name: str = "roi_align_nchw",
) -> Tensor:
    """Return the mean (`avg`, 0) or the maximum (`max`, 1) of samples in each cell of regions of NCHW images.

    `rois` [n, 5]: image, left, top, right, bottom, times `spatial_scale` in pixels. A region, of at least 1 × 1, has
    `pooled_size` cells, a cell `sample_ratio` samples along each axis, or one for each pixel begun (below 1), between
    pixels by linear interpolation; samples more than a pixel outside are 0 (He et al. 2017, as TVM has it). Returns
    [n, channels, *pooled_size]. DefinitionError for other shapes, modes, and symbolic extents.

        >>> from tensorlang import te, topi
        >>> images, rois = te.placeholder((2, 8, 14, 14)), te.placeholder((5, 5))
        >>> topi.vision.roi_align_nchw(images, rois, 7, 0.5, "avg", 2).shape
        (5, 8, 7, 7)
    """
    cells = _cells(name, data, rois, pooled_size)
    if mode not in _MODES:
        raise DefinitionError(f"{name} has the modes avg (0) and max (1), got {mode!r}")
    sides = [_side(name, rois, d, cells[d], extents(name, data)[2 + d], spatial_scale, sample_ratio) for d in (0, 1)]
    return (_mean if _MODES[mode] == "avg" else _largest)(data, rois, sides, name)


@checked
def roi_align_nhwc(
    data: Tensor,
    rois: Tensor,
    pooled_size: int | Sequence[int],
    spatial_scale: float,
    mode: int | str | bytes = "avg",
    sample_ratio: int = -1,
    name: str = "roi_align_nhwc",
) -> Tensor:
    """Return `roi_align_nchw` of NHWC images: [n, *pooled_size, channels].

    >>> from tensorlang import te, topi
    >>> images, rois = te.placeholder((2, 14, 14, 8)), te.placeholder((5, 5))
    >>> topi.vision.roi_align_nhwc(images, rois, 7, 0.5, "avg", 2).shape
    (5, 7, 7, 8)
    """
    if data.ndim != 4:
        raise DefinitionError(f"{name} wants images [n, height, width, channels], got {data}")
    moved = transpose(data, (0, 3, 1, 2), f"{name}_data")
    made = roi_align_nchw(moved, rois, pooled_size, spatial_scale, mode, sample_ratio, f"{name}_cells")
    return transpose(made, (0, 2, 3, 1), name)


@checked
def roi_pool_nchw(
    data: Tensor, rois: Tensor, pooled_size: int | Sequence[int], spatial_scale: float, name: str = "roi_pool_nchw"
) -> Tensor:
    """Return the largest pixel in each cell of regions of NCHW images, 0 where a cell has none (Girshick 2015).

    `rois` [n, 5]: image, left, top, right, bottom, rounded to pixels after `spatial_scale`, the last ones included.
    Returns [n, channels, *pooled_size]. DefinitionError for other shapes and symbolic extents.

        >>> from tensorlang import te, topi
        >>> topi.vision.roi_pool_nchw(te.placeholder((2, 8, 14, 14)), te.placeholder((5, 5)), (3, 4), 0.5).shape
        (5, 8, 3, 4)
    """
    cells, (images, channels, *pixels) = _cells(name, data, rois, pooled_size), extents(name, data)
    regions, least = rois.shape[0], te.min_value(data.dtype)

    def edge(d: int, r: Expr, p: Expr, side: int) -> Expr:
        """Where a cell begins (0), or the pixel behind its end (1)."""
        low, high = (cast(te.round(rois(r, 2 - d + k) * spatial_scale), "int32") for k in (0, 2))
        size = cast(te.maximum(high - low + 1, 1), rois.dtype) / cells[d]
        near = te.const(1e-5, rois.dtype)  # what is whole stays so in spite of rounding
        at = cast(p + side, rois.dtype) * size
        whole = te.ceil(at - near) if side else te.floor(at + near)
        return te.maximum(te.minimum(cast(whole, "int32") + low, pixels[d]), 0)

    ends = [
        computed(
            (regions, cells[d], 2),
            lambda r, p, s, d=d: te.select(s < 1, edge(d, r, p, 0), edge(d, r, p, 1)),
            f"{name}_at{d}",
        )
        for d in (0, 1)
    ]
    y, x = te.reduce_axis((0, pixels[0]), "y"), te.reduce_axis((0, pixels[1]), "x")

    def row(r: Expr, c: Expr, p: Expr, w: Expr) -> Expr:
        inside = te.all(binary("ge", y.var, ends[0](r, p, 0)), binary("lt", y.var, ends[0](r, p, 1)))
        return te.max(data(_image(rois, r, images), c, y, w), axis=y, where=inside)

    rows = computed((regions, channels, cells[0], pixels[1]), row, f"{name}_rows")

    def cell(r: Expr, c: Expr, p: Expr, q: Expr) -> Expr:
        inside = te.all(binary("ge", x.var, ends[1](r, q, 0)), binary("lt", x.var, ends[1](r, q, 1)))
        return te.max(rows(r, c, p, x), axis=x, where=inside, init=least)

    found = computed((regions, channels, *cells), cell, f"{name}_largest")

    def element(r: Expr, c: Expr, p: Expr, q: Expr) -> Expr:
        some = [binary("lt", ends[d](r, k, 0), ends[d](r, k, 1)) for d, k in ((0, p), (1, q))]
        return te.select(te.all(*some), found(r, c, p, q), te.const(0, data.dtype))

    return computed(found.shape, element, name)


def _cells(name: str, data: Tensor, rois: Tensor, size: int | Sequence[int]) -> tuple[int, int]:
    """Cells along height and width; DefinitionError for what is no images and regions of floats."""
    found = (size, size) if isinstance(size, int) else tuple(size)
    shapes = data.ndim == 4 and rois.ndim == 2 and extents(name, rois)[1] == 5 and len(extents(name, data)) == 4
    floats = data.dtype == rois.dtype and dtypes.info(data.dtype).is_float
    if not shapes or not floats or len(found) != 2 or min(found) < 1:
        raise DefinitionError(
            f"{name} wants images [n, channels, height, width] and regions [n, 5] of one dtype of floats, and a size "
            f"of at least 1 or two; got {data}, {rois} and {size!r}"
        )
    return found[0], found[1]


def _image(rois: Tensor, r: Expr, images: int) -> Expr:
    """The image of a region, brought to the nearest one."""
    return te.maximum(te.minimum(cast(rois(r, 0), "int32"), images - 1), 0)


@dataclass(frozen=True, slots=True)
class _Side:
    """Samples along the rows (`d` 0) or the columns (1) of images: of `pixels`, in so many `cells` of a region.

    `edges` [regions, 3]: where a region begins, how wide its cells are, and how many samples these have.
    """

    name: str
    d: int
    cells: int
    pixels: int
    ratio: int
    edges: Tensor

    @property
    def most(self) -> int:
        """Samples of a cell that are in an image, at most: several are more than half a pixel apart."""
        return self.ratio if self.ratio > 0 else 2 * (self.pixels + 1) + 2

    def number(self, value: float) -> Expr:
        """A number of the dtype of places."""
        return te.const(value, self.edges.dtype)

    def at(self, r: Expr, p: Expr, k: Expr) -> Expr:
        """The place of a sample of a cell, by its number."""
        low, wide, count = (self.edges(r, word) for word in range(3))
        return low + cast(p, low.dtype) * wide + (k + self.number(0.5)) * (wide / count)

    def sample(self, r: Expr, p: Expr, k: Expr) -> tuple[Expr, Expr]:
        """The place, in the image, of a sample that may be there, and whether it is."""
        number = cast(k, self.edges.dtype)
        if self.ratio <= 0:  # none of those before the image
            gap = self.edges(r, 1) / self.edges(r, 2)
            before = te.floor((self.number(-1) - self.at(r, p, self.number(0))) / gap)
            number = number + te.maximum(before, self.number(0))
        at = self.at(r, p, number)
        near = te.all(number < self.edges(r, 2), at >= self.number(-1), at <= self.number(self.pixels))
        return inside(at, self.pixels), near

    def leaves(self, r: Expr, p: Expr) -> Expr:
        """Whether a sample of a cell is more than a pixel outside."""
        first, last = self.at(r, p, self.number(0)), self.at(r, p, self.edges(r, 2) - self.number(1))
        return te.any(first < self.number(-1), last > self.number(self.pixels))

    def shares(self) -> Tensor:
        """How much each pixel counts in a cell: [regions, cells, pixels], of a mean over samples."""
        s, shape = te.reduce_axis((0, self.most), "s"), (self.edges.shape[0], self.cells, self.pixels)

        def share(r: Expr, p: Expr, y: Expr) -> Expr:
            at, near = self.sample(r, p, s.var)
            hat = te.maximum(self.number(1) - te.abs(at - cast(y, at.dtype)), self.number(0))
            return te.sum(te.select(near, hat, self.number(0)), axis=s)

        total = computed(shape, share, f"{self.name}_total{self.d}")
        return computed(shape, lambda r, p, y: total(r, p, y) / self.edges(r, 2), f"{self.name}_share{self.d}")


def _side(name: str, rois: Tensor, d: int, cells: int, pixels: int, scale: float, ratio: int) -> _Side:
    def edge(r: Expr, k: Expr) -> Expr:
        low, high = (widened(rois(r, 2 - d + side)) * scale for side in (0, 2))
        wide = te.maximum(high - low, te.const(1, low.dtype)) / cells
        count = te.const(ratio, low.dtype) if ratio > 0 else te.ceil(wide)
        return te.select(k < 1, low, te.select(k < 2, wide, count))

    return _Side(name, d, cells, pixels, ratio, computed((rois.shape[0], 3), edge, f"{name}_edges{d}"))


def _mean(data: Tensor, rois: Tensor, sides: Sequence[_Side], name: str) -> Tensor:
    """The product of shares of rows, images and shares of columns."""
    images, channels, high, wide = extents(name, data)
    down, right = (side.shares() for side in sides)
    y, x = te.reduce_axis((0, high), "y"), te.reduce_axis((0, wide), "x")
    rows = computed(
        (rois.shape[0], channels, sides[0].cells, wide),
        lambda r, c, p, w: te.sum(down(r, p, y) * widened(data(_image(rois, r, images), c, y, w)), axis=y),
        f"{name}_rows",
    )
    shape: list[ExprLike] = [*rows.shape[:3], sides[1].cells]
    return rounded_once(
        name,
        data.dtype,
        lambda name, _: computed(shape, lambda r, c, p, q: te.sum(rows(r, c, p, x) * right(r, q, x), axis=x), name),
    )


def _largest(data: Tensor, rois: Tensor, sides: Sequence[_Side], name: str) -> Tensor:
    """The largest sample of each cell."""
    images, channels, *pixels = extents(name, data)
    k = [te.reduce_axis((0, side.most), word) for side, word in zip(sides, ("down", "right"), strict=True)]
    wide = dtypes.at_least_float32(data.dtype)
    none = te.const(-math.inf, wide)

    def element(r: Expr, c: Expr, p: Expr, q: Expr) -> Expr:
        (y, above), (x, beside) = sides[0].sample(r, p, k[0].var), sides[1].sample(r, q, k[1].var)
        value = interpolated(data, _image(rois, r, images), c, (y, x), pixels)
        return te.max(te.select(te.all(above, beside), value, none), axis=k)

    found = computed((rois.shape[0], channels, *(side.cells for side in sides)), element, f"{name}_samples")

    def largest(r: Expr, c: Expr, p: Expr, q: Expr) -> Expr:
        outside = te.any(sides[0].leaves(r, p), sides[1].leaves(r, q))
        return cast(te.maximum(found(r, c, p, q), te.select(outside, te.const(0, wide), none)), data.dtype)

    return computed(found.shape, largest, name)
