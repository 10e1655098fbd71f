"""The tables of the library: the operators that the command line knows by name, and the rules by tag."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib import import_module

from tensorlang.errors import DefinitionError
from tensorlang.topi.checked import checked
from tensorlang.topi.operator import Operator, Rule

_NAMES = (
    "activation",
    "attention",
    "broadcast",
    "conv2d",
    "conv2d_product",
    "dense",
    "depthwise",
    "gather",
    "matmul",
    "narrow_conv2d",
    "narrow_filters",
    "normalization",
    "pooling",
    "quantized",
    "reduction",
    "softmax",
    "transform",
)
"""The modules of the families; by name, since `topi.matmul` is the function."""

FAMILIES = tuple(import_module(f"tensorlang.topi.{name}") for name in _NAMES)
"""Each has `OPERATORS`, a tuple of Operator, and `RULES`, rules by the tag of the stage that they schedule."""

OPERATORS: Mapping[str, Operator] = {op.name: op for family in FAMILIES for op in family.OPERATORS}
RULES: Mapping[str, Rule] = {tag: rule for family in FAMILIES for tag, rule in family.RULES.items()}


@checked
def operator(name: str) -> Operator:
    """Return the operator of that name, or raise DefinitionError with the nearest one."""
    if name in OPERATORS:
        return OPERATORS[name]
    near = difflib.get_close_matches(name, OPERATORS, 1)
    meant = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(OPERATORS)}"
    raise DefinitionError(f"unknown operator {name!r}{meant} (your own: path/to/file.py:function)")
