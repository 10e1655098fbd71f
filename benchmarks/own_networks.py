"""Networks of tensorlang that take part: a model compiled from its file, as a user would."""

from __future__ import annotations

from typing import Any

import numpy as np

import tensorlang
from benchmarks.peers.serve import Array, Call, Given


def network(given: Given) -> Call:
    """The compiled model on its inputs; kernels and weights are kept in the cache, as they are for users."""
    model = tensorlang.compile(given.options["model"], f"llvm -num-cores={given.threads}")
    inputs = given.in_order
    return lambda: model.run(inputs)


def to_numpy(outputs: Any) -> Array:
    """The first output."""
    return np.asarray(outputs[0])


BUILDERS = {"network": network}
