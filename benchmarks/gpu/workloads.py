"""The table of GPU workloads: sizes, dtypes, and what each is compared with."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.gpu.operators import OPERATORS, Array, Shapes
from tensorlang import dtypes, te
from tensorlang.ir.expr import Const

COPY = "copy"
"""What memory-bound workloads are compared with: a copy inside the device that moves as many bytes."""
LIBRARY = "library"
"""What the others are compared with: the vendor's library."""

TOLERANCES = {"float32": 5e-5, "float16": 4e-3, "bfloat16": 2e-2}
"""Largest error over largest value: a few times the rounding of the result, or of sums of 4096 products."""


@dataclass(frozen=True, slots=True)
class Workload:
    """An operator with sizes. `against`: COPY or LIBRARY; `quick`: part of a quick run."""

    name: str
    operator: str
    shapes: Shapes
    dtype: str
    against: str
    options: Mapping[str, Any] = field(default_factory=dict)
    quick: bool = False

    def program(self) -> list[te.Tensor]:
        """The tensors of a call: inputs, then the result."""
        given = {name: te.placeholder(shape, self.dtype, name=name) for name, shape in self.shapes.items()}
        return [*given.values(), OPERATORS[self.operator].result(given, self.dtype, self.options)]

    def inputs(self) -> dict[str, Array]:
        """Random arrays by name, around zero; of products so small that sums stay of the size of one."""
        rng = np.random.default_rng(0)
        element = dtypes.info(self.dtype).numpy
        return {n: (rng.random(s, np.float32) - np.float32(0.5)).astype(element) for n, s in self.shapes.items()}

    def reference(self, inputs: Mapping[str, Array]) -> Array:
        """The result of arrays, computed in float32."""
        wide = {name: array.astype(np.float32) for name, array in inputs.items()}
        return OPERATORS[self.operator].reference(wide, self.options)

    @property
    def output(self) -> tuple[int, ...]:
        """The shape of the result."""
        return tuple(int(extent.value) for extent in self.program()[-1].shape if isinstance(extent, Const))

    @property
    def operations(self) -> float:
        """Arithmetic operations."""
        return OPERATORS[self.operator].operations(self.shapes, self.options)

    @property
    def bytes(self) -> int:
        """Bytes of all arrays, each once."""
        elements = sum(map(math.prod, self.shapes.values())) + math.prod(self.output)
        return elements * dtypes.info(self.dtype).bytes

    @property
    def tolerance(self) -> float:
        """Largest error allowed, as a share of the largest value."""
        return TOLERANCES[self.dtype]


def product(n: int, dtype: str, quick: bool = False) -> Workload:
    """A product of square matrices."""
    return Workload(f"matmul-{n}-{dtype}", "matmul", {"A": (n, n), "B": (n, n)}, dtype, LIBRARY, quick=quick)


def dense(n: int, dtype: str, quick: bool = False) -> Workload:
    """A product with a square matrix of weights, given as [outputs, inputs]."""
    return Workload(f"dense-{n}-{dtype}", "dense", {"A": (n, n), "B": (n, n)}, dtype, LIBRARY, quick=quick)


def product_gelu(n: int, dtype: str) -> Workload:
    """A product with bias and GELU."""
    shapes = {"A": (n, n), "B": (n, n), "bias": (n,)}
    return Workload(f"matmul-gelu-{n}-{dtype}", "matmul_gelu", shapes, dtype, LIBRARY, quick=n <= 4096)


def softmax(rows: int, columns: int, dtype: str) -> Workload:
    """A softmax of rows."""
    name = f"softmax-{rows}x{columns}-{dtype}"
    return Workload(name, "softmax", {"x": (rows, columns)}, dtype, COPY, quick=True)


def norm(rows: int, columns: int, dtype: str) -> Workload:
    """A layer norm of rows."""
    shapes = {"x": (rows, columns), "gamma": (columns,), "beta": (columns,)}
    return Workload(f"layer-norm-{rows}x{columns}-{dtype}", "layer_norm", shapes, dtype, COPY)


def transpose(n: int, dtype: str) -> Workload:
    """A transposed square matrix."""
    return Workload(f"transpose-{n}-{dtype}", "transpose", {"x": (n, n)}, dtype, COPY, quick=True)


def chain(n: int, dtype: str) -> Workload:
    """Three elementwise operators on vectors of n elements."""
    return Workload(f"chain-{n}-{dtype}", "chain", dict.fromkeys("abc", (n,)), dtype, COPY)


def layer(images: int, size: int, channels: int, dtype: str) -> Workload:
    """A 3x3 layer of ResNet-50."""
    shapes = {"x": (images, size, size, channels), "w": (3, 3, channels, channels)}
    name, options = f"conv-{images}x{size}x{size}x{channels}-3x3-{dtype}", {"padding": 1}
    return Workload(name, "conv2d", shapes, dtype, LIBRARY, options, quick=size == 14)


def heads(count: int, tokens: int, depth: int, dtype: str) -> Workload:
    """The attention of a layer."""
    shapes = dict.fromkeys("qkv", (count, tokens, depth))
    return Workload(f"attention-{count}x{tokens}x{depth}-{dtype}", "attention", shapes, dtype, LIBRARY)


WORKLOADS: tuple[Workload, ...] = (
    product(4096, "float16", quick=True),
    product(4096, "bfloat16"),
    dense(4096, "bfloat16", quick=True),
    product(4096, "float32", quick=True),
    product_gelu(4096, "float16"),
    softmax(4096, 4096, "float32"),
    norm(8192, 4096, "float16"),
    transpose(8192, "float32"),
    chain(1 << 26, "float32"),
    layer(16, 56, 64, "float16"),
    layer(16, 28, 128, "float16"),
    layer(16, 14, 256, "float16"),
    layer(16, 7, 512, "float16"),
    heads(16, 4096, 128, "bfloat16"),
    product(8192, "float16"),
    product(8192, "bfloat16"),
    dense(8192, "bfloat16"),
)


def chosen(pattern: str, quick: bool = False) -> Sequence[Workload]:
    """The workloads with names like the pattern (`matmul`, `conv-*`), of a quick run only if asked."""
    found = [w for w in WORKLOADS if fnmatch.fnmatch(w.name, f"*{pattern}*")]
    return [w for w in found if w.quick or not quick]


def named(name: str) -> Workload:
    """The workload of a name."""
    (found,) = (w for w in WORKLOADS if w.name == name)
    return found
