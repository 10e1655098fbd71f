"""Images read at places that another tensor holds: between their pixels, and beyond their borders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod

from tensorlang import te
from tensorlang.ir.expr import Expr, binary, cast
from tensorlang.networks.elements import number
from tensorlang.networks.network import Value
from tensorlang.networks.node import Node, Rule
from tensorlang.networks.refusal import Unsupported
from tensorlang.te.operation import Tensor

_MODES = {"bilinear": "linear", "bicubic": "cubic"}
"""Names of old opsets."""
_TAPS = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}
"""Pixels along a dimension that an element is made of, beside the one before its place."""
_CUBIC = -0.75


def _grid_sample(node: Node) -> Value:
    data, grid, (n, c, *extents) = node.tensor(0), node.tensor(1), node.shape(0)
    mode = node.attrs.get("mode", "linear")
    mode, padding = _MODES.get(mode, mode), node.attrs.get("padding_mode", "zeros")
    if mode not in _TAPS or padding not in ("zeros", "border", "reflection"):
        raise Unsupported(f"{node.op} of mode {mode} with padding {padding}")
    if mode == "cubic" and len(extents) != 2:
        raise Unsupported(f"{node.op} of mode cubic over {len(extents)} dimensions")
    corners, (_, *sizes, _) = bool(node.attrs.get("align_corners")), node.shape(1)
    places = [_places(node, grid, sizes, d, extents, corners, padding, mode) for d in range(len(extents))]

    def element(b: Expr, channel: Expr, *at: Expr) -> Expr:
        own = [p(b, *at) for p in places]
        floors = [te.nearbyint(p) if mode == "nearest" else te.floor(p) for p in own]
        parts = []
        for taps in product(_TAPS[mode], repeat=len(extents)):
            spots = [f + number(t, f) for f, t in zip(floors, taps, strict=True)]
            held = [_inside(s, e, padding, corners) for s, e in zip(spots, extents, strict=True)]
            value = data(b, channel, *(cast(h, "int32") for h in held))
            shares = [_share(p - s, mode) for p, s in zip(own, spots, strict=True)] if mode != "nearest" else []
            value = prod(shares, start=value)
            if padding == "zeros":
                seen = [
                    t for s, e in zip(spots, extents, strict=True) for t in (s >= number(0, s), s <= number(e - 1, s))
                ]
                value = te.select(te.all(*seen), value, number(0, value))
            parts.append(value)
        return sum(parts[1:], start=parts[0])

    return node.compute((n, c, *sizes), element)


def _places(
    node: Node,
    grid: Tensor,
    sizes: Sequence[int],
    d: int,
    extents: Sequence[int],
    corners: bool,
    padding: str,
    mode: str,
) -> Callable[..., Expr]:
    """Where elements lie along a dimension, in pixels: a stage, which all channels read."""
    extent, last = extents[d], len(extents) - 1 - d

    def place(b: Expr, *at: Expr) -> Expr:
        x = grid(b, *at, last)
        one, half = number(1, x), number(0.5, x)
        x = (x + one) * half * number(extent - 1, x) if corners else ((x + one) * number(extent, x) - one) * half
        if mode == "cubic" or padding == "zeros":
            return x
        return _inside(x, extent, padding, corners)

    made: Tensor = te.compute((node.shape(1)[0], *sizes), place, name=f"{node.stage}_at{d}")
    return made


def _inside(x: Expr, extent: int, padding: str, corners: bool) -> Expr:
    """A place in pixels brought back into an image; `reflection`: mirrored at its border as often as needed."""
    if padding == "reflection":
        low, span = (0.0, extent - 1.0) if corners else (-0.5, float(extent))
        if span > 0:
            far = te.abs(x - number(low, x))
            turned = te.fmod(far, number(2 * span, x))
            x = te.minimum(turned, number(2 * span, x) - turned) + number(low, x)
    return te.maximum(te.minimum(x, number(extent - 1, x)), number(0, x))


def _share(distance: Expr, mode: str) -> Expr:
    """The weight of a pixel by its distance: linear, or cubic (Keys, 1981)."""
    d = te.abs(distance)
    if mode == "linear":
        return number(1, d) - d
    a = _CUBIC
    near = ((d * number(a + 2, d)) - number(a + 3, d)) * d * d + number(1, d)
    far = ((d * number(a, d) - number(5 * a, d)) * d + number(8 * a, d)) * d - number(4 * a, d)
    return te.select(binary("lt", d, number(1, d)), near, te.select(binary("lt", d, number(2, d)), far, number(0, d)))


RULES: dict[str, Rule] = {"GridSample": _grid_sample}
