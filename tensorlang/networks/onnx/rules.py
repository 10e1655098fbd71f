"""All rules: what makes a program of a node, by operator of ONNX."""

from __future__ import annotations

from tensorlang.networks.node import Rule
from tensorlang.networks.onnx import elementwise, moves, norms, quantized, recurrent, resizing, sums, windows

RULES: dict[str, Rule] = {
    **elementwise.RULES,
    **moves.RULES,
    **norms.RULES,
    **quantized.RULES,
    **recurrent.RULES,
    **resizing.RULES,
    **sums.RULES,
    **windows.RULES,
}
"""What makes a program of a node, by operator."""
