"""Images in other sizes: the nearest element, or a mixture of neighbours."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tensorlang import dtypes, te
from tensorlang.ir.expr import Expr, binary
from tensorlang.networks.network import Value
from tensorlang.networks.node import Node, Rule
from tensorlang.networks.places import within
from tensorlang.networks.refusal import Unsupported, refuse_large


def _resize(node: Node) -> Value:
    shape = node.shape(0)
    scales, sizes = _scales(node, shape)
    refuse_large("its output", sizes, dtypes.info(node.tensor(0).dtype).bytes)
    mode = node.attrs.get("mode", "nearest")
    usual = "half_pixel" if node.op == "Resize" and node.opset > 10 else "asymmetric"
    how = node.attrs.get("coordinate_transformation_mode", usual)
    if how not in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"):
        raise Unsupported(f"{node.op} with coordinates {how}")
    if node.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise Unsupported(f"{node.op} that keeps the ratio of sides")
    if node.attrs.get("antialias"):
        raise Unsupported(f"{node.op} with antialias")
    if mode == "nearest":
        return _nearest(node, shape, sizes, scales, how)
    if mode == "linear":
        return _linear(node, shape, sizes, scales, how)
    raise Unsupported(f"{node.op} of mode {mode}")


def _scales(node: Node, shape: Sequence[int]) -> tuple[list[float], list[int]]:
    """The scale and the new extent of each dimension."""
    place = 2 if node.op == "Resize" and node.opset > 10 else 1
    axes = node.attrs.get("axes", range(len(shape)))
    scales, sizes = [1.0] * len(shape), list(shape)
    if node.has(3):
        for d, n in zip(axes, node.known(3, "the sizes").ravel(), strict=True):
            scales[d], sizes[d] = int(n) / shape[d], int(n)
    else:
        given = node.attrs.get("scales")
        found = node.known(place, "the scales").ravel() if given is None else given
        for d, scale in zip(axes, found, strict=True):
            scales[d], sizes[d] = float(scale), math.floor(shape[d] * float(scale))
    return scales, sizes


def _source(n: int, old: int, new: int, scale: float, how: str) -> float:
    """Where the element n of a resized dimension lies in the old one."""
    match how:
        case "asymmetric":
            return n / scale
        case "align_corners":
            return n * (old - 1) / (old * scale - 1) if new > 1 else 0.0
        case "pytorch_half_pixel" if new == 1:
            return 0.0
    return (n + 0.5) / scale - 0.5


def _nearest(node: Node, shape: Sequence[int], sizes: Sequence[int], scales: Sequence[float], how: str) -> Value:
    rounding = node.attrs.get("nearest_mode", "floor" if node.op == "Upsample" or node.opset < 11 else None)
    tables = [
        [_rounded(_source(n, old, new, scale, how), old, rounding or "round_prefer_floor") for n in range(new)]
        for old, new, scale in zip(shape, sizes, scales, strict=True)
    ]
    data = node.tensor(0)

    def element(*index: Expr) -> Expr:
        return data(*(_looked_up(node, v, table, old) for v, table, old in zip(index, tables, shape, strict=True)))

    return node.compute(sizes, element)


def _rounded(place: float, extent: int, how: str) -> int:
    found = {
        "floor": math.floor(place),
        "ceil": math.ceil(place),
        "round_prefer_floor": math.ceil(place - 0.5),
        "round_prefer_ceil": math.floor(place + 0.5),
    }[how]
    return max(0, min(extent - 1, found))


def _looked_up(node: Node, index: Expr, table: Sequence[int], old: int) -> Expr:
    """The entry of a table: a formula where there is one."""
    if list(table) == list(range(len(table))):
        return index
    times = len(table) // old
    if times and list(table) == [n // times for n in range(len(table))]:
        return binary("floordiv", index, times)
    return within(node.weights.tensor(np.array(table, np.int32))(index), old)


def _linear(node: Node, shape: Sequence[int], sizes: Sequence[int], scales: Sequence[float], how: str) -> Value:
    data, dtype = node.tensor(0), node.tensor(0).dtype
    changed = [d for d in range(len(shape)) if shape[d] != sizes[d]]
    tables = {}
    for d in changed:
        places = [_source(n, shape[d], sizes[d], scales[d], how) for n in range(sizes[d])]
        low = [math.floor(p) for p in places]
        ends = [[max(0, min(shape[d] - 1, n + k)) for n in low] for k in (0, 1)]
        share = np.array([p - n for p, n in zip(places, low, strict=True)], dtype)
        tables[d] = [node.weights.tensor(np.array(e, np.int32)) for e in ends], node.weights.tensor(share)

    def element(*index: Expr) -> Expr:
        def along(place: list[Expr], rest: Sequence[int]) -> Expr:
            if not rest:
                return data(*place)
            d, *others = rest
            (low, high), share = tables[d]
            a, b = (
                along([*place[:d], within(end(index[d]), shape[d]), *place[d + 1 :]], others) for end in (low, high)
            )
            part = share(index[d])
            return a * (te.const(1, dtype) - part) + b * part

        return along(list(index), changed)

    return node.compute(sizes, element)


RULES: dict[str, Rule] = {"Resize": _resize, "Upsample": _resize}
