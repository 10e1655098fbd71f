"""Operators of the library for small arrays: what is exported and run elsewhere, by night all of them."""

from __future__ import annotations

from typing import Any

import numpy as np

import tensorlang
from tensorlang import dtypes
from tensorlang.runtime.executable import Executable
from tensorlang.te.operation import PlaceholderOp
from tensorlang.topi.table import OPERATORS
from tests.profiles import NIGHTLY

SIZES = {"N": 6, "M": 20, "K": 8, "C": 8, "H": 9, "W": 7, "O": 16, "Q": 2, "D": 16}
OWN = {
    "attention": (2, 8, 8, 16),
    "conv2d": (1, 4, 9, 8, 8, 3),
    "depthwise_conv2d": (1, 8, 9, 7, 3),
    "conv2d_int8": (1, 16, 6, 6, 16, 3),
    "conv2d_int8_packed": (1, 16, 6, 6, 16, 3),
    "pack_conv2d_int8": (16, 16, 3),
}
"""Sizes of operators whose sizes depend on each other."""
NARROW = ("relu", "add", "dense", "matmul", "softmax", "layer_norm", "sum", "transpose")
INTEGERS = ("conv2d_int8", "conv2d_int8_packed", "pack_conv2d_int8", "quantized_dense", "pack_narrow", "dense_narrow")
ALL = [(name, "int8" if name in INTEGERS else "float32") for name in OPERATORS]
ALL += [(name, dtype) for name in NARROW for dtype in ("float16", "bfloat16", "float64")]
BY_DAY = [("conv2d", "float32"), ("matmul", "bfloat16"), ("softmax", "float16"), ("conv2d_int8", "int8")]


def cases(by_day: int) -> list[tuple[str, str]]:
    """Operators with a dtype: all by night, the first few of those above by day."""
    return ALL if NIGHTLY else BY_DAY[:by_day]


def operator(name: str, dtype: str, target: str = "llvm -num-cores=2") -> tuple[Executable, list[Any]]:
    """The library's kernel for small arrays, and arrays for a call."""
    found = OPERATORS[name]
    tensors = found.tensors(OWN.get(name, tuple(SIZES[size] for size in found.sizes)), dtype)
    kernel: Executable = tensorlang.build(tensors, schedule="default", target=target)
    rng = np.random.default_rng(6)
    arrays = []
    for tensor in tensors:
        shape, kind = tuple(int(str(e)) for e in tensor.shape), dtypes.info(tensor.dtype)
        if not isinstance(tensor.op, PlaceholderOp):
            arrays.append(np.zeros(shape, kind.numpy))
        elif kind.is_float:
            arrays.append(rng.uniform(0.2, 1.5, shape).astype(kind.numpy))
        else:
            arrays.append(rng.integers(0, 4, shape).astype(kind.numpy))
    return kernel, arrays
