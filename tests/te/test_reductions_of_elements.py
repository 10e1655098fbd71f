"""Reductions are of elements over reduce axes: what other libraries write for whole tensors is refused, in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tensorlang import te
from tensorlang.errors import DefinitionError

A = te.placeholder((4, 5), name="A")
K = te.reduce_axis((0, 5), "k")


@pytest.mark.parametrize("name", ["sum", "prod", "min", "max"])
@pytest.mark.parametrize(
    "call",
    [
        lambda f: f(A, axis=-1),
        lambda f: f(A, axis=1),
        lambda f: f(A),
        lambda f: f(A, "k"),
        lambda f: f(A, K),
        lambda f: te.compute((4,), lambda i: f(A[i, K], axis=1)),
    ],
)
def test_a_number_is_no_reduce_axis(name: str, call: Callable[[Any], Any]) -> None:
    with pytest.raises(
        DefinitionError, match=rf"{name} is of elements over reduce axes, got .* topi.{name}\(A, axis=1\)"
    ):
        call(getattr(te, name))


def test_operands_are_combined_and_axes_may_come_without_their_name() -> None:
    values = np.arange(20, dtype=np.float32).reshape(4, 5) - 9
    above = te.evaluate(lambda A: te.compute((4,), lambda i: te.sum(A[i, K], K, A[i, K] > 0)), values)
    np.testing.assert_array_equal(above, np.where(values > 0, values, 0).sum(1))
    clipped = te.evaluate(lambda A: te.compute((4, 5), lambda i, j: te.max(A[i, j], -1.0, A[i, 0])), values)
    np.testing.assert_array_equal(clipped, np.maximum(np.maximum(values, -1), values[:, :1]))
    np.testing.assert_array_equal(te.evaluate(lambda A: te.max(A, 0), values), np.maximum(values, 0))
