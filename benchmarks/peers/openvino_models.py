"""OpenVINO's CPU plugin on the same models, set to float32 (or to bfloat16, for the product of that type)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import openvino

from benchmarks.peers.onnx_graphs import GRAPHS, QUANTIZED, dequantized_conv2d, model
from benchmarks.peers.serve import Array, Call, Given, Unsupported


def build(operator: str, given: Given) -> Call:
    """A compiled model whose inputs are set once."""
    if given.dtype == "int8" and operator != QUANTIZED:
        raise Unsupported("takes int8 from models quantized for it only")
    narrow = given.dtype == "bfloat16"
    if operator == QUANTIZED:
        made, fed = model(operator, given, dequantized_conv2d)
    else:
        made, fed = model(operator, replace(given, options={**given.options, "dtype": "float32"}))
    settings: dict[str, Any] = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": given.threads,
        "INFERENCE_PRECISION_HINT": openvino.Type.bf16 if narrow else openvino.Type.f32,
    }
    core = openvino.Core()
    request = core.compile_model(core.read_model(made.SerializeToString()), "CPU", settings).create_infer_request()
    for name, array in fed.items():
        request.set_tensor(name, openvino.Tensor(array))
    result = request.get_output_tensor(0)

    def call() -> Any:
        request.infer()
        return result

    return call


def to_numpy(tensor: Any) -> Array:
    """The output."""
    return np.asarray(tensor.data)


BUILDERS = {name: partial(build, name) for name in GRAPHS}
