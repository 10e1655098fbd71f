"""onnxruntime on the model of a network, with inputs and outputs bound to memory of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime

from benchmarks.peers.serve import Array, Call, Given


def network(given: Given) -> Call:
    """A session on the file."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = given.threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(given.options["model"], options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for described, array in zip(session.get_inputs(), given.in_order, strict=True):
        binding.bind_ortvalue_input(described.name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
    for described in session.get_outputs():
        binding.bind_output(described.name, "cpu")
    session.run_with_iobinding(binding)
    results = binding.get_outputs()
    for described, result in zip(session.get_outputs(), results, strict=True):
        binding.bind_ortvalue_output(described.name, result)

    def call() -> Any:
        session.run_with_iobinding(binding)
        return results

    return call


def to_numpy(outputs: Any) -> Array:
    """The first output."""
    return np.asarray(outputs[0].numpy())


BUILDERS = {"network": network}
