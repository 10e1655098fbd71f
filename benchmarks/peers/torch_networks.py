"""PyTorch's compiler (Inductor) on modules of its own and of torchvision, frozen, with the weights of their models."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch._inductor.config

from benchmarks.peers.serve import Array, Call, Given, Unsupported
from benchmarks.peers.torch_modules import module_of


def network(given: Given) -> Call:
    """The compiled module, whose weights may be laid out ahead."""
    if not given.options["module"]:
        raise Unsupported("no module of PyTorch")
    torch.set_num_threads(given.threads)
    torch._inductor.config.freezing = True
    module = torch.compile(module_of(given.options["module"]))
    inputs = [torch.from_numpy(array) for array in given.in_order]

    def call() -> Any:
        with torch.inference_mode():
            return module(*inputs)

    return call


def to_numpy(output: Any) -> Array:
    """The output."""
    return np.asarray(output.numpy())


BUILDERS = {"network": network}
