"""Images in other sizes: the nearest element, or a mixture of neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tensorlang import dtypes, te
from tensorlang.ir.expr import Expr, binary
from tensorlang.networks.network import Array, Value
from tensorlang.networks.node import Node, Rule
from tensorlang.networks.places import within
from tensorlang.networks.refusal import Unsupported, refuse_large
from tensorlang.te.operation import Tensor


def _resize(node: Node) -> Value:
    shape = node.shape(0)
    scales, sizes = _scales(node, shape)
    if any(n < 1 for n in sizes):
        raise Unsupported(f"{node.op} of {shape} to {tuple(sizes)}")
    refuse_large("its output", sizes, dtypes.info(node.tensor(0).dtype).bytes)
    mode = node.attrs.get("mode", "nearest")
    usual = "half_pixel" if node.op == "Resize" and node.opset > 10 else "asymmetric"
    how = node.attrs.get("coordinate_transformation_mode", usual)
    if how not in ("half_pixel", "half_pixel_symmetric", "asymmetric", "align_corners", "pytorch_half_pixel"):
        raise Unsupported(f"{node.op} with coordinates {how}")
    if mode not in ("nearest", *_KERNELS):
        raise Unsupported(f"{node.op} of mode {mode}")
    if mode == "nearest":
        return _nearest(node, shape, sizes, scales, how)
    if mode == "cubic" or node.attrs.get("antialias") or node.attrs.get("exclude_outside"):
        return _filtered(node, sizes, scales, how, _KERNELS[mode])
    return _linear(node, shape, sizes, scales, how)


def _scales(node: Node, shape: Sequence[int]) -> tuple[list[float], list[int]]:
    """The scale and the new extent of each dimension."""
    place = 2 if node.op == "Resize" and node.opset > 10 else 1
    axes = node.attrs.get("axes", range(len(shape)))
    scales, sizes = [1.0] * len(shape), list(shape)
    if node.has(3):
        wanted = [int(n) for n in node.known(3, "the sizes").ravel()]
        ratios = {d: n / shape[d] for d, n in zip(axes, wanted, strict=True)}
        policy = node.attrs.get("keep_aspect_ratio_policy", "stretch")
        for d, n in zip(axes, wanted, strict=True):
            if policy == "stretch":
                scales[d], sizes[d] = ratios[d], n
            else:
                scales[d] = (min if policy == "not_larger" else max)(ratios.values())
                sizes[d] = math.floor(scales[d] * shape[d] + 0.5)
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
        case "half_pixel_symmetric":
            return old / 2 * (1 - new / (scale * old)) + (n + 0.5) / scale - 0.5
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


def cubic(distance: float, a: float) -> float:
    """The weight of a pixel by its distance (Keys, 1981)."""
    d = abs(distance)
    if d >= 2:
        return 0.0
    return ((a + 2) * d - (a + 3)) * d * d + 1 if d < 1 else ((a * d - 5 * a) * d + 8 * a) * d - 4 * a


_KERNELS: Mapping[str, tuple[int, Callable[[float, float], float]]] = {
    "linear": (1, lambda distance, a: max(0.0, 1 - abs(distance))),
    "cubic": (2, cubic),
}
"""How far pixels reach, and what they weigh by their distance, by the mode."""


def _filtered(
    node: Node,
    sizes: Sequence[int],
    scales: Sequence[float],
    how: str,
    kernel: tuple[int, Callable[[float, float], float]],
) -> Value:
    """Sums of weighted neighbours, one dimension after the other."""
    made, shape = node.tensor(0), list(node.shape(0))
    for d, (new, scale) in enumerate(zip(sizes, scales, strict=True)):
        if new == shape[d]:
            continue
        places, shares = _neighbours(node, shape[d], new, scale, how, kernel)
        where, weights = node.weights.tensor(places), node.weights.tensor(shares.astype(made.dtype))
        old, before, shape[d] = shape[d], made, new
        k = te.reduce_axis((0, places.shape[1]), "k")

        def element(*i: Expr, of: Tensor = before, d: int = d, k: Any = k, at: Any = (where, weights, old)) -> Any:
            place = within(at[0](i[d], k), at[2])
            return te.sum(of(*i[:d], place, *i[d + 1 :]) * at[1](i[d], k), axis=k)

        made = te.compute(tuple(shape), element, name=f"{node.stage}_{d}")
    return made


def _neighbours(
    node: Node, old: int, new: int, scale: float, how: str, kernel: tuple[int, Callable[[float, float], float]]
) -> tuple[Array, Array]:
    """For each new pixel the old ones that it is made of, and their shares."""
    reach, weight = kernel
    narrow = min(1.0, scale) if node.attrs.get("antialias") else 1.0
    far, a = math.ceil(reach / narrow), float(node.attrs.get("cubic_coeff_a", -0.75))
    places, shares = np.zeros((new, 2 * far), np.int32), np.zeros((new, 2 * far))
    for n in range(new):
        source = _source(n, old, new, scale, how)
        for k in range(2 * far):
            place = math.floor(source) + 1 - far + k
            inside = 0 <= place < old or not node.attrs.get("exclude_outside")
            places[n, k] = max(0, min(old - 1, place))
            shares[n, k] = weight((place - source) * narrow, a) if inside else 0.0
    return places, shares / shares.sum(1, keepdims=True)


RULES: dict[str, Rule] = {"Resize": _resize, "Upsample": _resize}
