"""The rules for GPUs by the tag of the stage that they schedule."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from tensorlang.topi.operator import Rule

_NAMES = (
    "attention",
    "conv2d",
    "conv2d_tensor_cores",
    "depthwise",
    "elementwise",
    "matmul",
    "reduction",
    "rows",
    "transpose",
)
"""The modules of the families."""

FAMILIES = tuple(import_module(f"tensorlang.topi.gpu.{name}") for name in _NAMES)
"""Each has `RULES`, rules by the tag of the stage that they schedule."""

RULES: Mapping[str, Rule] = {tag: rule for family in FAMILIES for tag, rule in family.RULES.items()}
