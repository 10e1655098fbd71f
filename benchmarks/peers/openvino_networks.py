"""OpenVINO's CPU plugin on the model of a network, set to float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import openvino

from benchmarks.peers.serve import Array, Call, Given


def network(given: Given) -> Call:
    """A compiled model whose inputs are set once."""
    settings: dict[str, Any] = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": given.threads,
        "INFERENCE_PRECISION_HINT": openvino.Type.f32,
    }
    core = openvino.Core()
    request = core.compile_model(core.read_model(given.options["model"]), "CPU", settings).create_infer_request()
    for number, array in enumerate(given.in_order):
        request.set_input_tensor(number, openvino.Tensor(array))
    result = request.get_output_tensor(0)

    def call() -> Any:
        request.infer()
        return result

    return call


def to_numpy(tensor: Any) -> Array:
    """The first output."""
    return np.asarray(tensor.data)


BUILDERS = {"network": network}
