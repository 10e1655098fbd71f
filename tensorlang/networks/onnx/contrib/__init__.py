"""Operators of onnxruntime's own domain, as functions of operators of ONNX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensorlang.networks.network import Value
from tensorlang.networks.node import Rule
from tensorlang.networks.onnx.bodies import Body, Written
from tensorlang.networks.onnx.contrib import attention, fused, integers, nbits, norms

DOMAIN = "com.microsoft"
WRITTEN: Mapping[str, Written] = {**attention.WRITTEN, **fused.WRITTEN, **integers.WRITTEN, **norms.WRITTEN}
"""What writes an operator down, by its name; source: ContribOperators.md of onnxruntime, and its CPU kernels."""
RULES: Mapping[str, Rule] = nbits.RULES
"""Those that are no function of operators of ONNX."""
IN_ONNX = ("SimplifiedLayerNormalization",)
"""Those that onnxruntime keeps in the domain of ONNX."""


def contributed(proto: Any, label: str, inputs: Sequence[Value | None], attributes: Mapping[str, Any]) -> Any | None:
    """The function that a node calls; None where it is no operator of onnxruntime that is known."""
    known = proto.domain == DOMAIN or (proto.domain in ("", "ai.onnx") and proto.op_type in IN_ONNX)
    if not known or proto.op_type not in WRITTEN:
        return None
    body = Body(proto.op_type, label, len(proto.output), tuple(inputs), attributes)
    made = WRITTEN[proto.op_type](body)
    return body.function([made] if isinstance(made, str) else made, DOMAIN)
