"""PyTorch's compiler (Inductor) on modules of torchvision, frozen, with the weights that their models have."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch._inductor.config

from benchmarks.network_models import torchvision_module
from benchmarks.peers.serve import Array, Call, Given, Unsupported


def network(given: Given) -> Call:
    """The compiled module, whose weights may be laid out ahead."""
    if not given.options["module"]:
        raise Unsupported("no module of PyTorch")
    torch.set_num_threads(given.threads)
    torch._inductor.config.freezing = True
    module = torch.compile(torchvision_module(given.options["module"]))
    inputs = [torch.from_numpy(array) for array in given.in_order]

    def call() -> Any:
        with torch.inference_mode():
            return module(*inputs)

    return call


def to_numpy(output: Any) -> Array:
    """The output."""
    return np.asarray(output.numpy())


BUILDERS = {"network": network}
