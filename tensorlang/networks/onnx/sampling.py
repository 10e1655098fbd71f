"""Images read at places that another tensor holds: between their pixels, and beyond their borders."""

from __future__ import annotations

from tensorlang.ir.expr import Expr
from tensorlang.networks.network import Value
from tensorlang.networks.node import Node, Rule
from tensorlang.networks.refusal import Unsupported
from tensorlang.topi.layers.sampling import sampled

_MODES = {"linear": "bilinear", "cubic": "bicubic"}
"""Names of new opsets."""


def _grid_sample(node: Node) -> Value:
    data, grid, (_, _, *pixels) = node.tensor(0), node.tensor(1), node.shape(0)
    mode = node.attrs.get("mode", "linear")
    method, padding = _MODES.get(mode, mode), node.attrs.get("padding_mode", "zeros")
    if method not in ("nearest", "bilinear", "bicubic") or padding not in ("zeros", "border", "reflection"):
        raise Unsupported(f"{node.op} of mode {mode} with padding {padding}")
    if method == "bicubic" and len(pixels) != 2:
        raise Unsupported(f"{node.op} of mode cubic over {len(pixels)} dimensions")
    last, (_, *sizes, _) = len(pixels) - 1, node.shape(1)

    def at(d: int, n: Expr, *point: Expr) -> Expr:
        return grid(n, *point, last - d)

    return sampled(data, at, sizes, method, padding, bool(node.attrs.get("align_corners")), node.stage)


RULES: dict[str, Rule] = {"GridSample": _grid_sample}
