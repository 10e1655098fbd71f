"""Ordered statements under the rules for GPUs: how many threads they get, and that they compute what NumPy does."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, TypeAlias

import numpy as np
import pytest

import tensorlang
from tensorlang import te, topi
from tensorlang.runtime.host_program import device_kernels
from tensorlang.te.operation import Tensor
from tensorlang.testing.cuda_emulation import emulate_program, unavailable
from tests.topi.gpu.device_runs import GPU, TARGETS, run_on, scheduled
from tests.topi.programs import Array, close

RNG = np.random.default_rng(0)
Program: TypeAlias = tuple[list[Tensor], Tensor, list[Array], Array]
"""Inputs and an output, arrays for the former, and what the latter is then."""


def reals(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def running(shape: tuple[int, ...], axis: int, dtype: str = "float32") -> Program:
    x = te.placeholder(shape, dtype, name="x")
    array = RNG.integers(-4, 5, shape).astype(dtype)
    return [x], topi.cumsum(x, axis), [array], np.cumsum(array, axis, dtype)


def scattered(rows: int, columns: int, dtype: str = "float32") -> Program:
    shape = (40, columns)[: 2 if columns else 1]
    own = (rows, *shape[1:])
    x, u = (te.placeholder(s, dtype, name=name) for s, name in ((shape, "x"), (own, "u")))
    at = te.placeholder(own, "int32", name="at")
    arrays = [RNG.integers(-9, 9, shape).astype(dtype), RNG.integers(0, 40, own), RNG.integers(-9, 9, own)]
    arrays = [a.astype(t.dtype) for a, t in zip(arrays, (x, at, u), strict=True)]
    wanted = arrays[0].copy()
    np.add.at(wanted, (arrays[1], *np.indices(own)[1:]), arrays[2])
    return [x, at, u], topi.scatter_add(x, at, u), arrays, wanted


def aligned(rows: Any = 50, columns: Any = 45) -> Program:
    """Smith and Waterman's alignment of two words: each cell needs those above, to the left, and both."""
    a, b = (te.placeholder((n,), "int32", name=name) for n, name in ((rows, "a"), (columns, "b")))

    def cell(self: Any, i: Any, j: Any) -> Any:
        both = te.if_then_else(te.all(i > 0, j > 0), self[i - 1, j - 1], 0) + te.select(a[i] == b[j], 2, -1)
        above, left = te.if_then_else(i > 0, self[i - 1, j], 0), te.if_then_else(j > 0, self[i, j - 1], 0)
        return te.max(te.max(both, above - 1), te.max(left - 1, 0))

    words = [RNG.integers(0, 4, n).astype(np.int32) for n in (50, 45)]
    table = np.zeros((51, 46), np.int32)
    for i, x in enumerate(words[0]):
        for j, y in enumerate(words[1]):
            table[i + 1, j + 1] = max(table[i, j] + (2 if x == y else -1), table[i, j + 1] - 1, table[i + 1, j] - 1, 0)
    return [a, b], te.recurrence((rows, columns), cell, name="cells", dtype="int32"), words, table[1:, 1:]


def recurrent() -> Program:
    steps, batch, hidden = 5, 3, 40
    x, w = te.placeholder((steps, batch, hidden), name="x"), te.placeholder((hidden, hidden), name="w")
    state, k = te.placeholder((steps, batch, hidden)), te.reduce_axis((0, hidden), "k")
    first = te.compute((1, batch, hidden), lambda _, b, h: te.tanh(x[0, b, h]))
    products = te.compute(x.shape, lambda t, b, h: te.sum(state[t - 1, b, k] * w[h, k], axis=k), name="products")
    update = te.compute(x.shape, lambda t, b, h: te.tanh(products[t, b, h] + x[t, b, h]))
    arrays = [reals(steps, batch, hidden), reals(hidden, hidden) / 8]
    states = [np.tanh(arrays[0][0])]
    for t in range(1, steps):
        states.append(np.tanh(states[-1] @ arrays[1].T + arrays[0][t]))
    return [x, w], te.scan(first, update, state, inputs=[x, w], name="states"), arrays, np.stack(states)


def smoothed() -> Program:
    """Steps of a stencil, each of which is too large for one block."""

    @te.hybrid.script
    def steps(a: Any) -> Any:
        b = te.output_tensor((140, 130), "float32")
        c = te.allocate((140, 130), "float32")
        for i in range(140):
            for j in range(130):
                b[i, j] = a[i, j]
        for _ in range(3):
            for i in range(138):
                for j in range(130):
                    c[i, j] = b[i, j] + b[i + 2, j]
            for i in range(138):
                for j in range(130):
                    b[i + 1, j] = c[i, j] / 2
        return b

    x, array = te.placeholder((140, 130), name="x"), reals(140, 130)
    wanted = array.copy()
    for _ in range(3):
        wanted[1:-1] = (wanted[:-2] + wanted[2:]) / 2
    return [x], steps(x), [array], wanted


def ordered(rows: int, columns: int) -> Program:
    x, array = te.placeholder((rows, columns), name="x"), reals(rows, columns)
    return [x], topi.sort(x, axis=1), [array], np.sort(array, axis=1)


CASES: dict[str, tuple[Callable[[], Program], list[tuple[int, int]]]] = {
    "sums along rows": (lambda: running((70, 30), 1), [(2, 64)]),
    "sums along columns of halves": (lambda: running((30, 70), 0, "float16"), [(2, 64), (3, 256)]),
    "sums along a middle axis": (lambda: running((3, 20, 40), 1), [(2, 64)]),
    "pieces of long rows": (lambda: running((3, 700), 1), [(18, 32), (1, 32), (3, 64)]),
    "pieces of pieces": (
        lambda: running((5000,), 0, "int32"),
        [(40, 32), (3, 32), (1, 1), (1, 32), (5, 64)],
    ),
    "rows that meet": (lambda: scattered(50, 70), [(11, 256), (2, 64)]),
    "numbers that meet": (lambda: scattered(300, 0, "int32"), [(1, 64), (2, 256)]),
    "a wavefront": (aligned, [(1, 64)]),
    "steps of a cell": (recurrent, [(1, 128), (1, 128)]),
    "steps of many blocks": (smoothed, [(72, 256), (71, 256), (71, 256)]),
    "rows sorted in device memory": (lambda: ordered(40, 90), [(8, 256), (1, 64), (8, 256)]),
}


def grids(output: Tensor, inputs: list[Tensor]) -> list[tuple[int, int]]:
    """Blocks of each kernel and threads of each block."""
    made = device_kernels(tensorlang.lower(scheduled(output), [*inputs, output], target=GPU).kernel)
    return [(prod(int(str(blocks)) for blocks in kernel.grid), prod(kernel.block)) for kernel in made]


def check(made: Array, wanted: Array) -> None:
    if made.dtype.kind == "f":
        close(made, wanted)
    else:
        np.testing.assert_array_equal(made, wanted)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, target: str) -> None:
    inputs, output, arrays, wanted = CASES[name][0]()
    check(run_on(target, output, wanted.shape, *zip(inputs, arrays, strict=True)), wanted)


@pytest.mark.parametrize("name", CASES)
def test_threads(name: str) -> None:
    inputs, output, _, _ = CASES[name][0]()
    assert grids(output, inputs) == CASES[name][1]


@pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CASES)
def test_texts(name: str) -> None:
    inputs, output, arrays, wanted = CASES[name][0]()
    kernel = tensorlang.lower(scheduled(output), [*inputs, output], target=GPU).kernel
    made = np.zeros_like(wanted)
    emulate_program(kernel, dict(zip((p.name for p in kernel.params), [*arrays, made], strict=True)), seed=3)
    check(made, wanted)


def test_a_wavefront_of_any_size() -> None:
    """Its loop over wavefronts is the host's."""
    m, n = te.var("m"), te.var("n")
    inputs, output, arrays, wanted = aligned(m, n)
    check(run_on("interpreter", output, wanted.shape, *zip(inputs, arrays, strict=True)), wanted)


@pytest.mark.filterwarnings("ignore::tensorlang.errors.OneThread")
def test_steps_that_wait_in_both_directions_stay_in_one_thread() -> None:
    """Each element needs all before it."""

    def element(self: Any, i: Any) -> Any:
        return te.if_then_else(i > 0, self[i - 1] * self[i - 1], x[i])

    x = te.placeholder((9,), "int32", name="x")
    assert grids(te.recurrence((9,), element, dtype="int32"), [x]) == [(1, 1)]
