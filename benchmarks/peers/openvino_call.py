"""A model of ONNX in OpenVINO's CPU plugin, as a call on inputs that are set once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import openvino

from benchmarks.peers.serve import Array, Call


def compiled(model: str | bytes, inputs: Iterable[tuple[str | int, Array]], threads: int, precision: Any) -> Call:
    """A model (a file, or its bytes) for some threads; inputs by name or number, the first output is returned."""
    settings: dict[str, Any] = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": precision,
    }
    core = openvino.Core()
    request = core.compile_model(core.read_model(model), "CPU", settings).create_infer_request()
    for key, array in inputs:
        place = request.set_tensor if isinstance(key, str) else request.set_input_tensor
        place(key, openvino.Tensor(array))
    result = request.get_output_tensor(0)

    def call() -> Any:
        request.infer()
        return result

    return call


def to_numpy(tensor: Any) -> Array:
    """The output."""
    return np.asarray(tensor.data)
