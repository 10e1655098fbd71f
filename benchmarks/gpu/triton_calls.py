"""The workloads in Triton: products. Compiled PyTorch is Triton for the rest."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.gpu.given import Builder, Given
from benchmarks.gpu.torch_calls import tensors


def _matmul(given: Given) -> Mapping[str, Callable[[], Any]]:
    product = importlib.import_module("benchmarks.gpu.triton_product").product
    A, B = tensors(given, "A", "B")
    out = A.new_empty((A.shape[0], B.shape[1]))

    def call() -> Any:
        product(A, B, out)
        return out

    return {"": call}


BUILDERS: Mapping[str, Builder] = {"matmul": _matmul}
