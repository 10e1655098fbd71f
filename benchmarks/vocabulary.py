"""`python -m benchmarks operators`: operators beside products and convolutions of images, beside every installed peer.

Every contestant has a builder by the name of the operator, as it has of workloads.
"""

from __future__ import annotations

import fnmatch
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.operators import Array, Arrays
from benchmarks.workloads import TOLERANCES, Goal

Random = np.random.Generator
Inputs = dict[str, Array]
_GOAL = Goal(1.0, 1.0)


@dataclass(frozen=True)
class Case:
    """An operator on inputs: how they are drawn, what is right in float64, its operations, elements of the result."""

    name: str
    operator: str
    draw: Callable[[Random], Inputs]
    exact: Callable[[Arrays, Mapping[str, Any]], Array]
    operations: float
    result: int
    options: Mapping[str, Any] = field(default_factory=dict)
    goal: Goal = _GOAL
    group: str = "operators"
    constant: tuple[str, ...] = ()
    dtype: str = "float32"
    tolerance: float = TOLERANCES["float32"]

    @property
    def all_options(self) -> dict[str, Any]:
        """The options."""
        return dict(self.options)

    @property
    def bytes(self) -> int:
        """Bytes of all arrays, each once, the result in 4 bytes an element."""
        return sum(a.nbytes for a in self.inputs().values()) + 4 * self.result

    def inputs(self) -> Inputs:
        """The arrays, by name, the same each time."""
        return self.draw(np.random.default_rng(0))

    def reference(self, inputs: Arrays) -> Array:
        """The result in float64."""
        wide = {name: a.astype(float) if a.dtype.kind == "f" else a for name, a in inputs.items()}
        return self.exact(wide, self.options)


def normal(**shapes: tuple[int, ...]) -> Callable[[Random], Inputs]:
    """Inputs of float32."""
    return lambda rng: {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def convolution(given: Arrays, options: Mapping[str, Any]) -> Array:
    """Of an array [n, c, ...] with filters [o, c, ...], in any number of dimensions."""
    x, w, p = given["x"], given["w"], options["padding"]
    axes = tuple(range(2, x.ndim))
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(x, [(0, 0)] * 2 + [(p, p)] * len(axes)), w.shape[2:], axis=axes
    )
    inside = [1, *(axis + len(axes) for axis in axes)]
    return np.asarray(np.moveaxis(np.tensordot(windows, w, (inside, [1, *axes])), -1, 1))


def transposed_convolution(given: Arrays, options: Mapping[str, Any]) -> Array:
    """The convolution of an image with zeros between its points, with filters [c, o, ...] turned around."""
    x, w, stride = given["x"], given["w"], options["stride"]
    spread = np.zeros((*x.shape[:2], *(stride * (n - 1) + 1 for n in x.shape[2:])))
    spread[:, :, ::stride, ::stride] = x
    turned = w[:, :, ::-1, ::-1].swapaxes(0, 1)
    return convolution({"x": spread, "w": turned}, {"padding": w.shape[2] - 1 - options["padding"]})


def resize(given: Arrays, options: Mapping[str, Any]) -> Array:
    """To twice the size between neighbours, centres of pixels at halves."""

    def between(n: int) -> Array:
        at = np.clip((np.arange(2 * n) + 0.5) / 2 - 0.5, 0, n - 1)
        distance = np.abs(at[:, None] - np.arange(n))
        return np.asarray(np.maximum(0, 1 - distance))

    x = given["x"]
    return np.asarray(between(x.shape[2]) @ x @ between(x.shape[3]).T)


def scatter_add(given: Arrays, options: Mapping[str, Any]) -> Array:
    """Each update added to the row that its index names, in its column."""
    made = given["data"].copy()
    np.add.at(made, (given["indices"], np.arange(made.shape[1])), given["updates"])
    return made


def lstm(given: Arrays, options: Mapping[str, Any]) -> Array:
    """The states after each step [steps, batch, size], from zero; gates in the order input, forget, cell, output."""
    states: list[Array] = []
    h = c = np.zeros((given["x"].shape[1], given["wh"].shape[1]))
    for x in given["x"]:
        i, f, g, o = np.split(x @ given["wi"].T + h @ given["wh"].T + given["bi"] + given["bh"], 4, axis=1)
        c = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
        h = np.tanh(c) / (1 + np.exp(-o))
        states.append(h)
    return np.stack(states)


def sparse_dense(given: Arrays, options: Mapping[str, Any]) -> Array:
    """The rows of a matrix that the elements of each sparse row name, added up."""
    begins = given["indptr"]
    rows = [slice(*ends) for ends in itertools.pairwise(begins)]
    return np.stack([given["data"][row] @ given["dense"][given["indices"][row]] for row in rows])


def transposed_convolution_case(channels: int, image: int, filters: int) -> Case:
    """Windows of 4 by 4, which double an image."""
    x, w = (1, channels, image, image), (channels, filters, 4, 4)
    operations, result = 2.0 * math.prod(x) * filters * 16, 4 * filters * image * image
    name, options = f"conv2d-transpose-{image}-{channels}-{filters}-4x4-s2", {"stride": 2, "padding": 1}
    draw = normal(x=x, w=w)
    return Case(name, "conv2d_transpose", draw, transposed_convolution, operations, result, options)


def convolution_case(operator: str, channels: int, filters: int, *sizes: int) -> Case:
    """Windows of 3, with padding that keeps the sizes."""
    x, w = (1, channels, *sizes), (filters, channels, *(3 for _ in sizes))
    result = filters * math.prod(sizes)
    name = f"{operator}-{'x'.join(map(str, sizes))}-{channels}-{filters}-3"
    draw = normal(x=x, w=w)
    return Case(name, operator, draw, convolution, 2.0 * result * math.prod(w[1:]), result, {"padding": 1})


def resize_case(channels: int, image: int) -> Case:
    """Linear, to twice the size."""
    result = 4 * channels * image * image
    draw = normal(x=(1, channels, image, image))
    return Case(f"resize-{image}-{channels}-linear-x2", "resize", draw, resize, 6.0 * result, result)


def shuffled(rows: int, n: int) -> Callable[[Random], Inputs]:
    """Rows of numbers that differ, so that their order is one."""
    return lambda rng: {"x": rng.permuted(np.arange(rows * n, dtype=np.float32).reshape(rows, n), axis=1)}


def topk_case(n: int, k: int) -> Case:
    """The places of the largest numbers, in order."""
    exact = lambda given, options: np.argsort(-given["x"], axis=1)[:, : options["k"]]  # noqa: E731
    return Case(f"topk-{k}-of-{n}", "topk", shuffled(1, n), exact, float(n), k, {"k": k}, tolerance=0.0)


def argsort_case(rows: int, n: int) -> Case:
    """The places of all numbers of each row, in order."""
    exact = lambda given, options: np.argsort(given["x"], axis=1)  # noqa: E731
    operations = rows * n * math.log2(n)
    return Case(f"argsort-rows-{rows}x{n}", "argsort", shuffled(rows, n), exact, operations, rows * n, tolerance=0.0)


def cumsum_case(rows: int, n: int) -> Case:
    """Sums up to each element of a row."""
    exact = lambda given, options: np.cumsum(given["x"], axis=1)  # noqa: E731
    return Case(f"cumsum-rows-{rows}x{n}", "cumsum", normal(x=(rows, n)), exact, float(rows * n), rows * n)


def scatter_add_case(rows: int, updates: int, columns: int) -> Case:
    """Into rows drawn at random, element by element."""

    def draw(rng: Random) -> Inputs:
        made = normal(data=(rows, columns), updates=(updates, columns))(rng)
        return made | {"indices": rng.integers(0, rows, (updates, columns))}

    name, operations = f"scatter-add-{updates}x{columns}", float(updates * columns)
    return Case(name, "scatter_add", draw, scatter_add, operations, rows * columns)


def lstm_case(steps: int, features: int, size: int) -> Case:
    """A batch of one, by weights of the size that trained ones have."""

    def draw(rng: Random) -> Inputs:
        shapes = {"wi": (4 * size, features), "wh": (4 * size, size), "bi": (4 * size,), "bh": (4 * size,)}
        weights = {name: a / np.float32(math.sqrt(size)) for name, a in normal(**shapes)(rng).items()}
        return weights | normal(x=(steps, 1, features))(rng)

    operations = 8.0 * steps * size * (features + size)
    known = ("wi", "wh", "bi", "bh")
    name = f"lstm-{features}x{size}-{steps}-steps"
    return Case(name, "lstm", draw, lstm, operations, steps * size, constant=known)


def sparse_case(n: int, share: float, columns: int) -> Case:
    """A square matrix of which a share is not zero (CSR), by a dense one."""
    count = int(n * n * share)

    def draw(rng: Random) -> Inputs:
        places = np.sort(rng.choice(n * n, count, replace=False))
        begins = np.searchsorted(places, n * np.arange(n + 1)).astype(np.int32)
        matrices = normal(data=(count,), dense=(n, columns))(rng)
        return matrices | {"indices": (places % n).astype(np.int32), "indptr": begins}

    name = f"csr-{n}-{share:.0%}-by-{columns}"
    return Case(name, "sparse_dense", draw, sparse_dense, 2.0 * count * columns, n * columns)


CASES: tuple[Case, ...] = (
    transposed_convolution_case(64, 28, 32),
    convolution_case("conv1d", 64, 128, 1024),
    convolution_case("conv3d", 16, 32, 16, 32, 32),
    resize_case(32, 128),
    topk_case(50_000, 1000),
    cumsum_case(1024, 1024),
    argsort_case(1024, 1024),
    lstm_case(64, 512, 1024),
    scatter_add_case(10_000, 20_000, 64),
    sparse_case(4096, 0.01, 128),
)


def chosen(pattern: str) -> list[Case]:
    """The cases with names like the pattern."""
    return [c for c in CASES if fnmatch.fnmatch(c.name, f"*{pattern}*")]
