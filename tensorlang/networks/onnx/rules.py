"""All rules: what makes a program of a node, by operator of ONNX."""

from __future__ import annotations

from tensorlang.networks.node import Rule
from tensorlang.networks.onnx import (
    blocks,
    einsum,
    elementwise,
    moves,
    norms,
    ordering,
    quantized,
    recurrent,
    regions,
    resizing,
    sampling,
    scattering,
    spectral,
    sums,
    windows,
)

RULES: dict[str, Rule] = {
    **blocks.RULES,
    **einsum.RULES,
    **elementwise.RULES,
    **moves.RULES,
    **norms.RULES,
    **ordering.RULES,
    **quantized.RULES,
    **recurrent.RULES,
    **regions.RULES,
    **resizing.RULES,
    **sampling.RULES,
    **scattering.RULES,
    **spectral.RULES,
    **sums.RULES,
    **windows.RULES,
}
"""What makes a program of a node, by operator."""
