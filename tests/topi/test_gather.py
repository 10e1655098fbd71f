"""Rows and elements chosen by indices that are data."""

from __future__ import annotations

import numpy as np
import pytest

import tensorlang
from tensorlang import te, topi
from tensorlang.errors import DefinitionError, KernelError
from tensorlang.topi.gather import embedding_reference
from tests.topi.programs import Given, given, run


def indices(*shape: int, low: int, high: int) -> Given:
    return te.placeholder(shape, "int32", "i"), np.random.default_rng(3).integers(low, high, shape, np.int32)


def test_embedding() -> None:
    table, i = given("table", 50, 33), indices(4, 6, low=-5, high=60)
    np.testing.assert_array_equal(run(topi.embedding(table[0], i[0]), table, i), embedding_reference(table[1], i[1])[0])


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_take_along_any_axis(axis: int) -> None:
    a, i = given("a", 4, 5, 6), indices(3, low=0, high=4)
    np.testing.assert_array_equal(run(topi.take(a[0], i[0], axis, mode="fast"), a, i), np.take(a[1], i[1], axis))


def test_take_of_the_flattened_tensor_counts_around() -> None:
    a, i = given("a", 4, 5), indices(7, low=-40, high=40)
    np.testing.assert_array_equal(run(topi.take(a[0], i[0], mode="wrap"), a, i), np.take(a[1], i[1], mode="wrap"))


def test_gather() -> None:
    a = given("a", 20, 33)
    for axis, shape in ((1, (20, 8)), (0, (7, 33))):
        i = indices(*shape, low=0, high=a[1].shape[axis])
        made = run(topi.gather(a[0], axis, i[0]), a, i)
        np.testing.assert_array_equal(made, np.take_along_axis(a[1], i[1], axis))


def test_the_fast_mode_refuses_an_index_outside() -> None:
    a, i = given("a", 4, 5), te.placeholder((2,), "int32", "i")
    out = topi.take(a[0], i, 0, mode="fast")
    kernel = tensorlang.build(topi.schedule(out), [a[0], i, out])
    with pytest.raises(KernelError):
        kernel(a[1], np.array([1, 9], np.int32), np.empty((2, 5), np.float32))


def test_refusals() -> None:
    a, floats = te.placeholder((4, 5), name="a"), te.placeholder((4,), name="f")
    with pytest.raises(DefinitionError, match="take wants integer indices"):
        topi.take(a, floats)
    with pytest.raises(DefinitionError, match=r"differ from .* along axis 1 only"):
        topi.gather(a, 1, te.placeholder((3, 5), "int32", "i"))
