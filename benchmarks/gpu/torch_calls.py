"""The workloads in PyTorch, eager (cuBLAS, cuDNN, its attention kernels) and compiled; imported when first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from benchmarks.gpu.given import Builder, Given
from benchmarks.gpu.operators import EPSILON

Prepared: TypeAlias = tuple[Callable[..., Any], list[Any]]
"""A function of tensors, and the tensors."""

_BACKENDS = {"flash": "FLASH_ATTENTION", "cuDNN": "CUDNN_ATTENTION", "memory-efficient": "EFFICIENT_ATTENTION"}
"""The fused kernels of scaled_dot_product_attention."""


def _torch() -> Any:
    """PyTorch, with float32 products as float32, and convolutions that cuDNN has chosen by trial."""
    torch = importlib.import_module("torch")
    if not torch.cuda.is_available():
        raise RuntimeError("this PyTorch has no CUDA, or a CUDA that is newer than the driver")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    return torch


def tensors(given: Given, *names: str) -> list[Any]:
    """Tensors over the memory of inputs."""
    torch = _torch()
    found = []
    for array in given.data(*names):
        bits = array.dtype == np.uint16
        tensor = torch.from_dlpack(array.view(np.int16) if bits else array)
        found.append(tensor.view(torch.bfloat16) if bits else tensor)
    return found


def _matmul(given: Given) -> Prepared:
    return _torch().matmul, tensors(given, "A", "B")


def _dense(given: Given) -> Prepared:
    return _torch().nn.functional.linear, tensors(given, "A", "B")


def _matmul_gelu(given: Given) -> Prepared:
    torch = _torch()
    return lambda A, B, bias: torch.nn.functional.gelu(torch.addmm(bias, A, B)), tensors(given, "A", "B", "bias")


def _softmax(given: Given) -> Prepared:
    torch = _torch()
    return lambda x: torch.softmax(x, -1), tensors(given, "x")


def _layer_norm(given: Given) -> Prepared:
    norm = _torch().nn.functional.layer_norm
    return lambda x, gamma, beta: norm(x, gamma.shape, gamma, beta, EPSILON), tensors(given, "x", "gamma", "beta")


def _transpose(given: Given) -> Prepared:
    return lambda x: x.t().contiguous(), tensors(given, "x")


def _chain(given: Given) -> Prepared:
    torch = _torch()
    return lambda a, b, c: torch.relu(a * b + c), tensors(given, "a", "b", "c")


def _conv2d(given: Given) -> Prepared:
    """Channels last, which cuDNN's tensor core kernels take as they are."""
    torch = _torch()
    x, w = tensors(given, "x", "w")
    x, w = x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
    padding = given.workload.options["padding"]
    convolve = torch.nn.functional.conv2d
    return lambda x, w: convolve(x, w, padding=padding).permute(0, 2, 3, 1), [x, w]


def _attention(given: Given) -> Mapping[str, Callable[[], Any]]:
    """Each of the fused kernels by itself."""
    torch = _torch()
    attention = importlib.import_module("torch.nn.attention")
    batch = [x.unsqueeze(0) for x in tensors(given, "q", "k", "v")]

    def by(backend: str) -> Callable[[], Any]:
        def call() -> Any:
            with torch.no_grad(), attention.sdpa_kernel([getattr(attention.SDPBackend, backend)]):
                return torch.nn.functional.scaled_dot_product_attention(*batch)[0]

        return call

    return {word: by(backend) for word, backend in _BACKENDS.items()}


def _eager(prepare: Callable[[Given], Prepared]) -> Builder:
    def build(given: Given) -> Mapping[str, Callable[[], Any]]:
        function, tensors = prepare(given)

        def call() -> Any:
            with _torch().no_grad():
                return function(*tensors)

        return {"": call}

    return build


def _compiled(prepare: Callable[[Given], Prepared]) -> Builder:
    def build(given: Given) -> Mapping[str, Callable[[], Any]]:
        function, tensors = prepare(given)
        compiled = _torch().compile(function, dynamic=False)

        def call() -> Any:
            with _torch().no_grad():
                return compiled(*tensors)

        return {"": call}

    return build


_FUNCTIONS = {
    "matmul": _matmul,
    "dense": _dense,
    "matmul_gelu": _matmul_gelu,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "transpose": _transpose,
    "chain": _chain,
    "conv2d": _conv2d,
}
_FUSED = ("matmul_gelu", "softmax", "layer_norm", "chain")

EAGER: Mapping[str, Builder] = {n: _eager(f) for n, f in _FUNCTIONS.items()} | {"attention": _attention}
COMPILED: Mapping[str, Builder] = {name: _compiled(_FUNCTIONS[name]) for name in _FUSED}
"""Where the compiler has something to fuse."""
