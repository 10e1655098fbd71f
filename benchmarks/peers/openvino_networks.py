"""OpenVINO's CPU plugin on the model of a network, set to float32."""

from __future__ import annotations

import openvino

from benchmarks.peers.openvino_call import compiled, to_numpy
from benchmarks.peers.serve import Call, Given

__all__ = ["BUILDERS", "to_numpy"]


def network(given: Given) -> Call:
    """A compiled model whose inputs are set once."""
    return compiled(given.options["model"], enumerate(given.in_order), given.threads, openvino.Type.f32)


BUILDERS = {"network": network}
