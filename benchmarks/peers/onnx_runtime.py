"""onnxruntime, with inputs and output bound to memory of its own, so that a call copies nothing."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import onnxruntime

from benchmarks.peers.onnx_graphs import GRAPHS, model
from benchmarks.peers.serve import Array, Call, Given


def build(operator: str, given: Given) -> Call:
    """A session on one model."""
    made, fed = model(operator, given)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = given.threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, array in fed.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
    binding.bind_output("y", "cpu")
    session.run_with_iobinding(binding)
    result = binding.get_outputs()[0]
    binding.bind_ortvalue_output("y", result)

    def call() -> Any:
        session.run_with_iobinding(binding)
        return result

    return call


def to_numpy(value: Any) -> Array:
    """The output."""
    return np.asarray(value.numpy())


BUILDERS = {name: partial(build, name) for name in GRAPHS}
