"""PyTorch, operation by operation."""

from __future__ import annotations

from benchmarks.peers import torch_vocabulary
from benchmarks.peers.torch_functions import PREPARED, eager, to_numpy

__all__ = ["BUILDERS", "to_numpy"]

BUILDERS = {name: eager(prepare) for name, prepare in PREPARED.items()} | torch_vocabulary.BUILDERS
