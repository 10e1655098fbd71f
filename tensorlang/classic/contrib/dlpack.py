"""`tvm.contrib.dlpack`: kernels as functions of PyTorch's tensors, which they take as they are."""

from __future__ import annotations

from typing import Any


def to_pytorch_func(tvm_func: Any) -> Any:
    """Return the kernel itself: it takes tensors of PyTorch, and of whatever speaks DLPack."""
    return tvm_func
