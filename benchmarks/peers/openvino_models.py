"""OpenVINO's CPU plugin on the same models, set to float32 (or to bfloat16, for the product of that type)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import openvino

from benchmarks.peers.onnx_graphs import GRAPHS, QUANTIZED, dequantized_conv2d, model
from benchmarks.peers.openvino_call import compiled, to_numpy
from benchmarks.peers.serve import Call, Given, Unsupported

__all__ = ["BUILDERS", "to_numpy"]


def build(operator: str, given: Given) -> Call:
    """A compiled model whose inputs are set once."""
    if given.dtype == "int8" and operator != QUANTIZED:
        raise Unsupported("takes int8 from models quantized for it only")
    narrow = given.dtype == "bfloat16"
    if operator == QUANTIZED:
        made, fed = model(operator, given, dequantized_conv2d)
    else:
        made, fed = model(operator, replace(given, options={**given.options, "dtype": "float32"}))
    precision = openvino.Type.bf16 if narrow else openvino.Type.f32
    return compiled(made.SerializeToString(), fed.items(), given.threads, precision)


BUILDERS = {name: partial(build, name) for name in GRAPHS}
