"""Places in order: those of NumPy's stable sort, what is not a number above all, by whichever way they are found."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tensorlang import build, te, topi
from tensorlang.networks import from_onnx
from tensorlang.networks.compiling import compile_network
from tensorlang.te.program import canonical
from tensorlang.te.reference import evaluate
from tensorlang.topi import ordering
from tensorlang.topi.ordering import places_in_order
from tests.networks.models import model, node

SHAPES = ((7,), (1, 60), (1, 20, 2), (1, 50))


def numbers(dtype: str, shape: tuple[int, ...], seed: int) -> Any:
    """Some of them often; of floats also those without an order of their own."""
    rng = np.random.default_rng(seed)
    if dtype.startswith("float"):
        made = rng.choice(np.r_[rng.standard_normal(200), 0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan], shape)
        return made.astype(dtype)
    info = np.iinfo(dtype)
    ends = np.array([info.min, info.max], dtype)
    return rng.choice(np.concatenate([rng.integers(info.min, info.max, 90, dtype, True), ends]), shape)


def in_order(data: Any, axis: int, descending: bool) -> Any:
    """The places of all elements, by NumPy: of equal ones the first comes first."""
    ranks = np.unique(data, return_inverse=True)[1].reshape(data.shape)
    return np.argsort(-ranks if descending else ranks, axis, stable=True)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8", "int32", "uint64"])
@pytest.mark.parametrize("number", range(len(SHAPES)))
def test_places_are_those_of_a_stable_sort(dtype: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "_LEAST", 40)
    shape = SHAPES[number]
    data, axis, descending = numbers(dtype, shape, number), (number + 1) % len(shape), bool((number + len(dtype)) % 2)
    wanted = max(1, shape[axis] // 16)
    x = te.placeholder(shape, dtype, "x")
    program, names = canonical([places := places_in_order(x, axis, descending, wanted, "p")])
    found = evaluate(program, [data])[names[id(places.op)]]
    moved = np.moveaxis(in_order(data, axis, descending), axis, -1)[..., :wanted]
    assert found.shape == (math.prod(shape[:axis]), math.prod(shape[axis + 1 :]), wanted)
    np.testing.assert_array_equal(found.reshape(moved.shape), moved)


@pytest.mark.parametrize(("extent", "wanted"), [(4500, 4500), (4500, 2000), (4500, 30), (2100, 7)])
def test_kernels_find_the_first_ones_wherever_they_are(extent: int, wanted: int) -> None:
    """Also where they are next to each other, so that there is no room for all that may be among them."""
    proto = model([node("TopK", "x k", "v p", axis=1, largest=0)], {"x": (2, extent)}, "v p", {"k": np.array([wanted])})
    compiled, data = compile_network(from_onnx(proto)), numbers("float32", (2, extent), 5)
    for x in (data, np.sort(data, 1), np.zeros_like(data), np.full_like(data, np.nan)):
        values, places = compiled(x)
        np.testing.assert_array_equal(places, in_order(x, 1, False)[:, :wanted])
        np.testing.assert_array_equal(values, np.take_along_axis(x, places, 1))


def test_no_elements_have_no_order() -> None:
    """Behind the axis, where their number divides the places."""
    x = te.placeholder((3, 2, 0), name="x")
    values, places = topi.topk(x, 2, axis=0)
    kernel = build(topi.schedule([values, places]), [x, values, places])
    kernel(np.zeros((3, 2, 0), np.float32), made := np.zeros((2, 2, 0), np.float32), np.zeros((2, 2, 0), np.int64))
    assert made.size == 0
