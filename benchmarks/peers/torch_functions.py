"""The workloads in PyTorch, for its eager and its compiled contestant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.operators import TAPS, corner_measure
from benchmarks.peers import mkl_kernels
from benchmarks.peers.serve import Array, Builder, Call, Given

mkl_kernels.enable()

import torch  # noqa: E402
from torch.nn import functional as F  # noqa: E402

TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "int8": torch.int8}
Prepared = tuple[Callable[..., Any], list[Any]]
"""A function of tensors, and the tensors."""


def tensors(given: Given, *names: str) -> list[Any]:
    """Those inputs."""
    return [torch.from_numpy(given[name]).to(TYPES[given.dtype]) for name in names if name in given.arrays]


def matmul(given: Given) -> Prepared:
    """Sums of bfloat16 are rounded to it, sums of int8 are int32."""
    if given.dtype == "int8":
        return torch._int_mm, tensors(given, "A", "B")
    return torch.matmul, tensors(given, "A", "B")


def dense_gelu(given: Given) -> Prepared:
    """The weights as `torch.nn.Linear` keeps them."""
    x, w, b = tensors(given, "x", "W", "b")
    return lambda x, w, b: F.gelu(F.linear(x, w, b)), [x, w.t().contiguous(), b]


def conv2d(given: Given) -> Prepared:
    """oneDNN."""
    options = {name: given.options[name] for name in ("stride", "padding", "groups")}
    if "bias" not in given.arrays:
        return lambda x, w: F.conv2d(x, w, **options), tensors(given, "x", "w")
    return lambda x, w, bias: F.relu(F.conv2d(x, w, bias, **options)), tensors(given, "x", "w", "bias")


def quantized_conv2d(given: Given) -> Prepared:
    """oneDNN, on channels last, with data as unsigned bytes with the zero at 128."""
    x, w = (torch.from_numpy(given[name]).float() for name in "xw")
    stride, padding, scale = (given.options[name] for name in ("stride", "padding", "scale"))
    data = torch.quantize_per_tensor(x, 1.0, 128, torch.quint8).contiguous(memory_format=torch.channels_last)
    scales, zeros = torch.full((len(w),), scale), torch.zeros(len(w), dtype=torch.long)
    weight = torch.quantize_per_channel(w * scale, scales, zeros, 0, torch.qint8)
    bias = torch.from_numpy(given["bias"]).float() * scale
    torch.backends.quantized.engine = "x86"
    packed = torch.ops.quantized.conv2d_prepack(weight, bias, [stride] * 2, [padding] * 2, [1, 1], 1)
    return lambda data: torch.ops.quantized.conv2d_relu(data, packed, 1.0, 0), [data]


def softmax(given: Given) -> Prepared:
    """Of rows."""
    return lambda x: F.softmax(x, dim=1), tensors(given, "x")


def layer_norm(given: Given) -> Prepared:
    """Of rows."""
    epsilon = given.options["epsilon"]
    function = lambda x, gamma, beta: F.layer_norm(x, gamma.shape, gamma, beta, epsilon)  # noqa: E731
    return function, tensors(given, "x", "gamma", "beta")


def attention(given: Given) -> Prepared:
    """The fused one, which wants a batch."""
    return F.scaled_dot_product_attention, [t[None] for t in tensors(given, "q", "k", "v")]


def jacobi(given: Given) -> Prepared:
    """Step by step, in two arrays."""
    steps = given.options["steps"]

    def call(x: Any) -> Any:
        a, b = x.clone(), x.clone()
        for _ in range(steps):
            inner = b[1:-1, 1:-1]
            torch.add(a[1:-1, 1:-1], a[1:-1, :-2], out=inner)
            inner.add_(a[1:-1, 2:]).add_(a[2:, 1:-1]).add_(a[:-2, 1:-1]).mul_(0.2)
            a, b = b, a
        return a

    return call, tensors(given, "x")


def blur(given: Given) -> Prepared:
    """Two convolutions with one row, and one column, of weights."""
    weights = torch.tensor(TAPS)

    def call(x: Any, along: Any, down: Any) -> Any:
        return F.conv2d(F.conv2d(x[None, None], along), down)[0, 0]

    return call, [*tensors(given, "x"), weights[None, None, None], weights[None, None, :, None]]


def corners(given: Given) -> Prepared:
    """Sums of shifted tensors."""
    return corner_measure, tensors(given, "x")


PREPARED: dict[str, Callable[[Given], Prepared]] = {
    "matmul": matmul,
    "dense_gelu": dense_gelu,
    "conv2d": conv2d,
    "quantized_conv2d": quantized_conv2d,
    "softmax": softmax,
    "layer_norm": layer_norm,
    "attention": attention,
    "jacobi": jacobi,
    "blur": blur,
    "corners": corners,
}


def to_numpy(result: Any) -> Array:
    """The result, without the batch of the attention."""
    result = result.int_repr() if result.is_quantized else result
    array: Array = (result.float() if result.is_floating_point() else result).numpy()
    return array


def eager(prepare: Callable[[Given], Prepared]) -> Builder:
    """A builder that calls the function as it is."""

    def build(given: Given) -> Call:
        torch.set_num_threads(given.threads)
        function, arguments = prepare(given)
        shape = given["q"].shape if "q" in given.arrays else None
        with torch.inference_mode():
            function(*arguments)

        def call() -> Any:
            with torch.inference_mode():
                result = function(*arguments)
            return result if shape is None else result.view(shape)

        return call

    return build


def compiled(prepare: Callable[[Given], Prepared]) -> Builder:
    """A builder that compiles the function, with templates tried for products."""

    def prepared(given: Given) -> Prepared:
        function, arguments = prepare(given)
        return torch.compile(function, mode="max-autotune-no-cudagraphs"), arguments

    return eager(prepared)


def compiled_jacobi(given: Given) -> Prepared:
    """One step, compiled; steps in Python."""
    steps = given.options["steps"]

    def step(a: Any, b: Any) -> None:
        b[1:-1, 1:-1] = 0.2 * (a[1:-1, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] + a[2:, 1:-1] + a[:-2, 1:-1])

    made = torch.compile(step)

    def call(x: Any) -> Any:
        a, b = x.clone(), x.clone()
        for _ in range(steps):
            made(a, b)
            a, b = b, a
        return a

    return call, tensors(given, "x")
