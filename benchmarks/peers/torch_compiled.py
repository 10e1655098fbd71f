"""PyTorch's compiler (Inductor), on the functions of the eager contestant."""

from __future__ import annotations

from benchmarks.peers.torch_functions import PREPARED, compiled, compiled_jacobi, eager, to_numpy

__all__ = ["BUILDERS", "to_numpy"]

BUILDERS = {name: compiled(prepare) for name, prepare in PREPARED.items()} | {"jacobi": eager(compiled_jacobi)}
