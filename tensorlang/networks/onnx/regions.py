"""Regions of images, read between their pixels."""

from __future__ import annotations

from typing import Any

from tensorlang import te
from tensorlang.ir.expr import Expr, binary, cast
from tensorlang.networks.elements import number
from tensorlang.networks.network import Value
from tensorlang.networks.node import Node, Rule
from tensorlang.networks.places import within
from tensorlang.networks.refusal import Unsupported
from tensorlang.te.operation import Tensor
from tensorlang.topi.between import inside, interpolated
from tensorlang.topi.computed import widened


def _roi_align(node: Node) -> Value:
    """Means of samples in each cell of a region, as Mask R-CNN has them (He et al., 2017)."""
    _, channels, *extents = node.shape(0)
    samples = int(node.attrs.get("sampling_ratio", 0))
    if node.attrs.get("mode", "avg") != "avg":
        raise Unsupported(f"{node.op} of mode {node.attrs['mode']}; avg is taken")
    if samples < 1:
        why = "whose samples are as many as the network computes"
        raise Unsupported(f"{node.op} with sampling_ratio = {samples}, {why}; export it with sampling_ratio=2")
    data, regions, images = node.tensor(0), node.tensor(1), node.tensor(2)
    cells = [int(node.attrs.get(f"output_{word}", 1)) for word in ("height", "width")]
    places = [_places(node, regions, d, cells[d], samples) for d in range(2)]
    down, right = (te.reduce_axis((0, samples), word) for word in ("down", "right"))

    def element(r: Expr, c: Expr, y: Expr, x: Expr) -> Any:
        at = [places[0](r, y * samples + down.var), places[1](r, x * samples + right.var)]
        image = within(images(r), node.shape(0)[0])
        near = [inside(p, n) for p, n in zip(at, extents, strict=True)]
        value = interpolated(data, image, c, near, extents)
        seen = te.all(*(_is_near(p, n) for p, n in zip(at, extents, strict=True)))
        return te.sum(te.select(seen, value, number(0, value)), axis=[down, right])

    total: Tensor = te.compute((node.shape(1)[0], channels, *cells), element, name=f"{node.stage}_sums")
    count = te.const(1 / (samples * samples), total.dtype)
    return node.compute((node.shape(1)[0], channels, *cells), lambda *i: cast(total(*i) * count, data.dtype))


def _places(node: Node, regions: Tensor, d: int, cells: int, samples: int) -> Tensor:
    """Where the samples of each region are along rows (0) or columns (1), in pixels."""
    usual = "half_pixel" if node.opset >= 16 else "output_half_pixel"
    mode = node.attrs.get("coordinate_transformation_mode", usual)
    if mode not in ("half_pixel", "output_half_pixel"):
        raise Unsupported(f"{node.op} with places by {mode}")
    scale = float(node.attrs.get("spatial_scale", 1.0))

    def place(r: Expr, k: Expr) -> Expr:
        first, last = (widened(regions(r, 1 - d + side)) for side in (0, 2))
        half = number(0.5 if mode == "half_pixel" else 0.0, first)
        first, last = (edge * number(scale, edge) - half for edge in (first, last))
        span = last - first if mode == "half_pixel" else te.maximum(last - first, number(1, first))
        share = span / number(cells * samples, span)
        return first + (cast(k, span.dtype) + number(0.5, span)) * share

    made: Tensor = te.compute((node.shape(1)[0], cells * samples), place, name=f"{node.stage}_at{d}")
    return made


def _is_near(place: Expr, extent: int) -> Expr:
    """Whether a place is in an image, or less than a pixel beside it."""
    return te.all(binary("ge", place, number(-1, place)), binary("le", place, number(extent, place)))


RULES: dict[str, Rule] = {"RoiAlign": _roi_align}
