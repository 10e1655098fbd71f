"""The table of workloads, and what each is to reach."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from benchmarks.operators import OPERATORS, TAPS, WIDTHS, Array, Operator, Shapes, draw

TOLERANCES = {"float32": 2e-5, "bfloat16": 1e-2, "int8": 0.0, "uint8": 1 / 128}
"""Largest error over largest value. Sums of 4096 products in float32 are off by some 1e-6; where results are rounded to
bytes, libraries differ by one.
"""


@dataclass(frozen=True, slots=True)
class Goal:
    """Times the speed of the best peer to reach, on one core and on more; of one peer only if `against` names it.

    `of_peak`: the share of the FMA peak of one core.
    """

    one: float
    more: float
    against: str = ""
    of_peak: float | None = None

    def ratio(self, threads: int) -> float:
        """The one for so many threads."""
        return self.one if threads == 1 else self.more


class Contested(Protocol):
    """What contestants run: an operator with its options, inputs, and the result that is right."""

    @property
    def name(self) -> str: ...
    @property
    def operator(self) -> str: ...
    @property
    def group(self) -> str: ...
    @property
    def goal(self) -> Goal: ...
    @property
    def constant(self) -> tuple[str, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def all_options(self) -> dict[str, Any]: ...
    @property
    def operations(self) -> float: ...
    @property
    def bytes(self) -> int: ...
    @property
    def tolerance(self) -> float: ...
    def inputs(self) -> dict[str, Array]: ...
    def reference(self, inputs: Mapping[str, Array]) -> Array: ...


@dataclass(frozen=True)
class Workload:
    """An operator with sizes; `constant`: the inputs known ahead. `group`: whose mean has a goal of its own."""

    name: str
    operator: str
    shapes: Shapes
    goal: Goal
    group: str
    options: Mapping[str, Any] = field(default_factory=dict)
    constant: tuple[str, ...] = ()
    dtype: str = "float32"

    @cached_property
    def definition(self) -> Operator:
        """What it computes."""
        return OPERATORS[self.operator]

    @property
    def all_options(self) -> dict[str, Any]:
        """The options, and the element type."""
        return {**self.options, "dtype": self.dtype}

    @property
    def operations(self) -> float:
        """Arithmetic operations."""
        return self.definition.operations(self.shapes, self.options)

    @property
    def bytes(self) -> int:
        """Bytes of all arrays, each once; sums of narrow types are stored in 4 bytes unless they are rounded."""
        read = WIDTHS[self.dtype] * sum(map(math.prod, self.shapes.values()))
        stored = 1 if self.definition.rounds_to else 4
        return read + stored * math.prod(self.definition.shape(self.shapes, self.options))

    @property
    def tolerance(self) -> float:
        """Largest error allowed, as a share of the largest value."""
        return TOLERANCES[self.definition.rounds_to or self.dtype]

    def inputs(self) -> dict[str, Array]:
        """The arrays, by name."""
        return draw(self.shapes, self.dtype)

    def reference(self, inputs: Mapping[str, Array]) -> Array:
        """The result in float64."""
        return self.definition.reference({name: a.astype(float) for name, a in inputs.items()}, self.options)


def square(n: int) -> Workload:
    """A matmul whose limit is the FMA peak."""
    goal = Goal(0.97, 0.97, of_peak=0.95 if n >= 1024 else None)
    return Workload(f"matmul-{n}", "matmul", {"A": (n, n), "B": (n, n)}, goal, "square matmul")


def odd(m: int, n: int, k: int) -> list[Workload]:
    """A matmul of an odd or thin shape, with B given at the call and known ahead."""
    shapes, name = {"A": (m, k), "B": (k, n)}, f"matmul-{m}x{n}x{k}"
    return [
        Workload(name + suffix, "matmul", shapes, Goal(1.0, 1.0), "odd and thin matmul", constant=constant)
        for suffix, constant in (("", ()), ("-packed", ("B",)))
    ]


def batched(b: int, m: int, n: int, k: int) -> list[Workload]:
    """Several small matmuls."""
    shapes, name = {"A": (b, m, k), "B": (b, k, n)}, f"matmul-{b}x{m}x{n}x{k}"
    return [
        Workload(name + suffix, "matmul", shapes, Goal(1.0, 1.0), "odd and thin matmul", constant=constant)
        for suffix, constant in (("", ()), ("-packed", ("B",)))
    ]


def narrow(n: int, dtype: str) -> Workload:
    """A matmul of a narrow type, summed in 32 bits."""
    shapes = {"A": (n, n), "B": (n, n)}
    return Workload(f"matmul-{n}-{dtype}", "matmul", shapes, Goal(0.9, 0.9), "narrow matmul", {}, ("B",), dtype)


def conv(image: int, channels: int, filters: int, window: int, stride: int = 1, groups: int = 1) -> list[Workload]:
    """A convolution with padding that keeps the image, bare and with bias and relu; depthwise ones bare."""
    padding = window // 2
    options = {"stride": stride, "padding": padding, "groups": groups}
    shapes = {"x": (1, channels, image, image), "w": (filters, channels // groups, window, window)}
    if groups > 1:
        name = f"depthwise-{image}-{channels}-{window}x{window}"
        return [Workload(name, "conv2d", shapes, Goal(1.3, 1.3), "depthwise", options, ("w",))]
    name = f"conv-{image}-{channels}-{filters}-{window}x{window}" + f"-s{stride}" * (stride > 1)
    relu = {**shapes, "bias": (filters,)}
    return [
        Workload(name, "conv2d", shapes, Goal(0.95, 0.95), "conv2d", options, ("w",)),
        Workload(name + "-relu", "conv2d", relu, Goal(0.95, 0.95), "conv2d", options, ("w", "bias")),
    ]


def quantized_conv(image: int, channels: int, filters: int, window: int, stride: int = 1) -> Workload:
    """A layer of a quantized network, with padding that keeps the image, bias, relu, and its way back to bytes.

    The scale brings the sums of random bytes, which are some 74 in size, to some 60.
    """
    scale = 60 / (74 * 74 * math.sqrt(channels * window * window))
    options = {"stride": stride, "padding": window // 2, "groups": 1, "scale": scale}
    image_and_filters = {"x": (1, channels, image, image), "w": (filters, channels, window, window)}
    name = f"conv-{image}-{channels}-{filters}-{window}x{window}" + f"-s{stride}" * (stride > 1) + "-int8"
    shapes = {**image_and_filters, "bias": (filters,)}
    goal, group = Goal(0.9, 0.9), "quantized conv2d"
    return Workload(name, "quantized_conv2d", shapes, goal, group, options, ("w", "bias"), "int8")


def row_softmax(m: int, n: int, goal: Goal) -> Workload:
    """A softmax of rows."""
    return Workload(f"softmax-{m}x{n}", "softmax", {"x": (m, n)}, goal, "row operators")


def norm(m: int, n: int) -> Workload:
    """A layer norm of rows."""
    shapes = {"x": (m, n), "gamma": (n,), "beta": (n,)}
    options = {"epsilon": 1e-5}
    return Workload(f"layer-norm-{m}x{n}", "layer_norm", shapes, Goal(2.0, 1.5), "row operators", options)


def gelu(m: int, k: int, n: int) -> Workload:
    """A dense layer of m rows from k to n features, with weights known ahead."""
    shapes = {"x": (m, k), "W": (k, n), "b": (n,)}
    return Workload(f"gelu-{m}x{k}x{n}", "dense_gelu", shapes, Goal(1.0, 1.0), "dense + gelu", {}, ("W", "b"))


def heads(count: int, tokens: int, depth: int) -> Workload:
    """The attention of a layer."""
    shapes = dict.fromkeys("qkv", (count, tokens, depth))
    return Workload(f"attention-{count}x{tokens}x{depth}", "attention", shapes, Goal(1.1, 1.1), "attention")


def stencil(n: int, steps: int) -> Workload:
    """A stencil of five points."""
    goal = Goal(3.0, 3.0, against="Numba")
    return Workload(f"jacobi-{n}-{steps}", "jacobi", {"x": (n, n)}, goal, "stencil", {"steps": steps})


def image_filter(operator: str, n: int, goal: Goal) -> Workload:
    """A filter of several stages that makes an image of n × n."""
    border = len(TAPS) - 1 if operator == "blur" else 4
    return Workload(f"{operator}-{n}", operator, {"x": (n + border, n + border)}, goal, "image filters")


WORKLOADS: tuple[Workload, ...] = (
    square(512),
    square(1024),
    square(2048),
    *odd(1000, 700, 300),
    *odd(128, 768, 3072),
    *odd(32, 4096, 4096),
    *odd(1, 4096, 4096),
    *batched(12, 128, 128, 64),
    *conv(56, 64, 64, 3),
    *conv(56, 64, 256, 1),
    *conv(28, 128, 128, 3),
    *conv(14, 256, 256, 3),
    *conv(7, 512, 512, 3),
    *conv(224, 3, 64, 7, stride=2),
    *conv(112, 32, 32, 3, groups=32),
    *conv(14, 512, 512, 3, groups=512),
    row_softmax(512, 1000, Goal(1.2, 1.1)),
    row_softmax(4096, 4096, Goal(1.6, 1.4)),
    norm(512, 768),
    gelu(128, 768, 3072),
    heads(12, 128, 64),
    heads(12, 1024, 64),
    narrow(1024, "bfloat16"),
    narrow(1024, "int8"),
    quantized_conv(56, 64, 64, 3),
    quantized_conv(56, 64, 256, 1),
    quantized_conv(28, 128, 128, 3),
    quantized_conv(14, 256, 256, 3),
    quantized_conv(7, 512, 512, 3),
    quantized_conv(224, 3, 64, 7, stride=2),
    stencil(1024, 1000),
    image_filter("blur", 1024, Goal(1.0, 1.0)),
    image_filter("corners", 1024, Goal(1.0, 1.0)),
)

MEANS: Mapping[str, float] = {"odd and thin matmul": 1.05, "conv2d": 1.0}
"""Goals of geometric means, by group."""


def chosen(pattern: str) -> list[Workload]:
    """The workloads with names like the pattern: `matmul`, `conv-*-relu`."""
    return [w for w in WORKLOADS if fnmatch.fnmatch(w.name, f"*{pattern}*")]
