"""The operators of `benchmarks.vocabulary` in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks.peers.serve import Builder, Call, Given


def sparse_dense(data: Any, indices: Any, indptr: Any, dense: Any) -> Any:
    """CSR by a matrix."""
    matrix = torch.sparse_csr_tensor(indptr, indices, data, (len(indptr) - 1, len(dense)), check_invariants=False)
    return matrix @ dense


def lstm(given: Given) -> Call:
    """The module, which keeps its weights as it likes them."""
    weights = [torch.from_numpy(given[name]) for name in ("wi", "wh", "bi", "bh")]
    module = torch.nn.LSTM(weights[0].shape[1], weights[1].shape[1])
    for mine, weight in zip(module.parameters(), weights, strict=True):
        mine.data.copy_(weight)
    x = torch.from_numpy(given["x"])
    return lambda: module(x)[0]


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "conv2d_transpose": lambda x, w, stride, padding: F.conv_transpose2d(x, w, None, stride, padding),
    "conv1d": lambda x, w, padding: F.conv1d(x, w, padding=padding),
    "conv3d": lambda x, w, padding: F.conv3d(x, w, padding=padding),
    "resize": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False),
    "topk": lambda x, k: torch.topk(x, k)[1],
    "cumsum": lambda x: torch.cumsum(x, 1),
    "argsort": lambda x: torch.argsort(x, 1),
    "scatter_add": lambda data, indices, updates: data.scatter_add(0, indices, updates),
    "sparse_dense": sparse_dense,
}


def _of_tensors(function: Callable[..., Any]) -> Builder:
    def build(given: Given) -> Call:
        tensors = {name: torch.from_numpy(a) for name, a in given.arrays.items()}
        return lambda: function(**tensors, **given.options)

    return build


def _inferring(builder: Builder) -> Builder:
    def build(given: Given) -> Call:
        torch.set_num_threads(given.threads)
        call: Call = torch.inference_mode()(builder(given))
        return call

    return build


BUILDERS = {name: _inferring(_of_tensors(f)) for name, f in FUNCTIONS.items()} | {"lstm": _inferring(lstm)}
