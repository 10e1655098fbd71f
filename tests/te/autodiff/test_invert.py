"""Reads by all kinds of indices: the gathers that they become, and the scatters that these must equal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorlang import te
from tests.te.autodiff.differences import lines, tensor, value


def reads(shape: Any, extents: Any, index: Callable[..., tuple[Any, ...]], dtype: str = "float64") -> te.Tensor:
    """The gradient of a tensor that only reads another, at `index`."""
    A = tensor("A", *shape, dtype=dtype)
    Y = te.compute(extents, lambda *i: A(*index(*i)), name="Y", varargs_names=["i", "j", "k"][: len(extents)])
    (grad,) = te.gradient(Y, [A], te.placeholder(extents, dtype, name="H"))
    return grad


n, m = te.var("n"), te.var("m")
GATHERS = {
    "transpose": (reads((n, m), (m, n), lambda i, j: (j, i)), "H[e1, e0]"),
    "reverse": (reads((n,), (n,), lambda i: (n - 1 - i,)), "H[n - e0 - 1]"),
    "reverse of eight": (reads((8,), (8,), lambda i: (7 - i,)), "H[7 - e0]"),
    "mirror": (reads((8, 8), (8,), lambda i: (i, 3 - i + 4)), "select(e0 + e1 == 7, H[e0], float64(0.0))"),
    "broadcast": (reads((m,), (n, m), lambda i, j: (j,)), "sum(H[i, e0]; i in [0, n))"),
    "constant index": (reads((n, 4), (n,), lambda i: (i, 2)), "select(e1 == 2, H[e0], float64(0.0))"),
    "diagonal": (reads((n, n), (n,), lambda i: (i, i)), "select(e0 == e1, H[e0], float64(0.0))"),
    "slice": (
        reads((n + 3,), (n,), lambda i: (i + 2,)),
        "select(e0 - 2 >= 0 and e0 - 2 < n, H[e0 - 2], float64(0.0))",
    ),
    "stride": (
        reads((2 * n,), (n,), lambda i: (2 * i,)),
        "select(e0 % 2 == 0, H[e0 // 2], float64(0.0))",
    ),
    "split": (reads((n, 4), (4 * n,), lambda i: (i // 4, i % 4)), "H[e1 + e0 * 4]"),
    "merge": (reads((n * 4,), (n, 4), lambda i, j: (i * 4 + j,)), "H[e0 // 4, e0 % 4]"),
    "three digits": (reads((2, 3, 8), (48,), lambda i: (i // 24, i // 8 % 3, i % 8)), "H[e2 + e1 * 8 + e0 * 24]"),
    "repeat": (reads((n,), (4 * n,), lambda i: (i // 4,)), "sum(H[m + e0 * 4]; m in [0, 4))"),
    "tile": (reads((4,), (4 * 5,), lambda i: (i % 4,)), "sum(H[e0 + q * 4]; q in [0, 5))"),
    "window": (
        reads((n + 2,), (n, 3), lambda i, j: (i + j,)),
        "sum(H[e0 - j, j]; j in [0, 3), where=e0 - j >= 0 and e0 - j < n)",
    ),
}


@pytest.mark.parametrize("name", GATHERS)
def test_index_maps_are_inverted(name: str) -> None:
    grad, expected = GATHERS[name]
    (line,) = lines(grad)
    assert line.split(" = ", 1)[1] == expected


@st.composite
def index_maps(draw: Any) -> tuple[tuple[int, ...], Callable[..., tuple[Any, ...]], tuple[int, ...]]:
    """Extents of one to three axes, one to three indices over them, and the shape that these need."""
    extents = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))

    def index() -> Callable[..., Any]:
        weights = [draw(st.sampled_from((-3, -2, -1, 0, 0, 1, 1, 2, 3, 6))) for _ in extents]
        steps = draw(st.lists(st.tuples(st.sampled_from("/%"), st.integers(1, 8), st.integers(0, 4)), max_size=2))

        def function(*axes: Any) -> Any:
            total = sum((w * a for w, a in zip(weights, axes, strict=True)), axes[0] * 0)
            for kind, divisor, shift in steps:
                total = (total + shift) // divisor if kind == "/" else (total + shift) % divisor
            return total

        return function

    functions = [index() for _ in range(draw(st.integers(1, 3)))]
    grid = np.meshgrid(*map(np.arange, extents), indexing="ij")
    lows = [int(f(*grid).min()) for f in functions]
    shape = tuple(int(f(*grid).max()) - low + 1 for f, low in zip(functions, lows, strict=True))
    return extents, lambda *i: tuple(f(*i) - low for f, low in zip(functions, lows, strict=True)), shape


@given(index_maps(), st.booleans())
def test_a_gather_is_the_scatter(
    drawn: tuple[tuple[int, ...], Callable[..., tuple[Any, ...]], tuple[int, ...]], reduced: bool
) -> None:
    """Also when the last axis is summed over, as in the body of a reduction."""
    extents, index, shape = drawn
    A, kept = tensor("A", *shape), extents[: len(extents) - reduced]
    r = te.reduce_axis((3, 3 + extents[-1]), "r")
    body = (lambda *i: te.sum(A(*index(*i, r - 3)), axis=r)) if reduced else lambda *i: A(*index(*i))
    Y = te.compute(kept, body, name="Y")
    (grad,) = te.gradient(Y, [A], tensor("H", *kept))
    te.create_schedule(grad.op)
    head = np.random.default_rng(0).integers(-9, 10, kept).astype(float)
    spread = np.broadcast_to(head[..., None], extents) if reduced else head
    expected = np.zeros(shape)
    np.add.at(expected, index(*np.meshgrid(*map(np.arange, extents), indexing="ij")), spread)
    np.testing.assert_array_equal(value(grad, {"H": head}), expected)


@st.composite
def symbolic_maps(draw: Any) -> tuple[tuple[int, ...], Callable[..., tuple[Any, ...]], Callable[..., tuple[Any, ...]]]:
    """Sizes of one or two axes; indices, as a function of the axes and their extents; the shape, of the extents."""
    sizes = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=2)))
    rows = []
    for _ in range(draw(st.integers(1, 2))):
        weights = [draw(st.sampled_from((-2, -1, 0, 1, 1, 2, 3))) for _ in sizes]
        rows.append((weights, draw(st.sampled_from(("", "/", "%"))), draw(st.integers(1, 6))))

    def index(axes: Sequence[Any], extents: Sequence[Any]) -> tuple[Any, ...]:
        found = []
        for weights, kind, divisor in rows:
            total = axes[0] * 0
            for w, a, extent in zip(weights, axes, extents, strict=True):
                total = total + (w * a if w >= 0 else -w * (extent - 1 - a))
            found.append(total // divisor if kind == "/" else total % divisor if kind == "%" else total)
        return tuple(found)

    def shape(extents: Sequence[Any]) -> tuple[Any, ...]:
        found = []
        for weights, kind, divisor in rows:
            last = sum(abs(w) * (extent - 1) for w, extent in zip(weights, extents, strict=True))
            found.append(divisor if kind == "%" else (last // divisor if kind == "/" else last) + 1)
        return tuple(found)

    return sizes, index, shape


@given(symbolic_maps())
def test_a_gather_over_symbolic_sizes_is_the_scatter(
    drawn: tuple[tuple[int, ...], Callable[..., tuple[Any, ...]], Callable[..., tuple[Any, ...]]],
) -> None:
    sizes, index, shape = drawn
    extents = [te.var(f"n{k}") for k in range(len(sizes))]
    A = tensor("A", *shape(extents))
    Y = te.compute(extents, lambda *i: A(*index(i, extents)), name="Y")
    (grad,) = te.gradient(Y, [A], tensor("H", *extents))
    te.create_schedule(grad.op)
    head = np.random.default_rng(0).integers(-9, 10, sizes).astype(float)
    expected = np.zeros(shape(sizes))
    np.add.at(expected, index(np.meshgrid(*map(np.arange, sizes), indexing="ij"), sizes), head)
    known = {f"n{k}": size for k, size in enumerate(sizes)}
    np.testing.assert_array_equal(value(grad, {"H": head}, known), expected)
