"""Gradients through recurrences, against differences: prefix sums and products, filters, several steps back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest

from tensorlang import te, topi
from tensorlang.errors import DefinitionError
from tensorlang.schedule.rewrites.running import running_of
from tensorlang.te.operation import HybridOp
from tensorlang.te.program import canonical
from tests.te.autodiff.differences import Array, check_differences, tensor, uniform, value

A, B = tensor("A", 4, 5), tensor("B", 4, 5)
Element: TypeAlias = Callable[[Any, Any, Any], te.Expr]


def made(element: Element) -> te.Tensor:
    found: te.Tensor = te.recurrence((4, 5), element, name="R", dtype="float64")
    return found


PROGRAMS: dict[str, tuple[te.Tensor, tuple[te.Tensor, ...]]] = {
    "sums": (topi.cumsum(A, axis=1), (A,)),
    "sums of all before, along columns": (topi.cumsum(A, axis=0, exclusive=True), (A,)),
    "sums of all": (topi.cumsum(A), (A,)),
    "products": (topi.cumprod(A, axis=1), (A,)),
    "products of all before": (topi.cumprod(A, axis=1, exclusive=True), (A,)),
    "maxima": (topi.scanop(A, te.maximum, -9.0, axis=1), (A,)),
    "a filter": (made(lambda r, i, j: te.if_then_else(i > 0, r[i - 1, j] * B[i, j] + A[i, j], A[i, j])), (A, B)),
    "two steps back": (
        made(lambda r, i, j: te.if_then_else(j > 1, te.tanh(r[i, j - 1]) * B[i, j] + r[i, j - 2] * A[i, j], A[i, 0])),
        (A, B),
    ),
    "what its own value decides": (
        made(
            lambda r, i, j: te.if_then_else(j > 0, te.select(r[i, j - 1] > 0, r[i, j - 1] * 0.5, A[i, j]), B[i, j] - 1)
        ),
        (A, B),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_recurrences_agree_with_differences(name: str) -> None:
    output, inputs = PROGRAMS[name]
    arrays = {t.name: uniform((4, 5), n) for n, t in enumerate(inputs)}
    arrays["A"][1, 2] = 0.0  # products have no quotients
    check_differences(output, inputs, arrays)


def test_a_symbolic_one_that_is_read_twice() -> None:
    n = te.var("n")
    X = tensor("X", n)
    C = te.recurrence((n,), lambda r, i: te.if_then_else(i == 0, X[0], r[i - 1] + X[i] * X[i]), name="C")
    Y = te.compute((n,), lambda i: te.exp(C[i] * 0.1) * X[i] + C[n - 1 - i], name="Y")
    check_differences(Y, [X], {"X": uniform((7,), 3)}, {"n": 7})
    (middle,) = te.gradient(Y, [C], tensor("H", n))
    assert "turned" not in canonical([middle])[0].text  # its elements are taken for inputs


def test_without_a_head_it_is_the_jacobian() -> None:
    X = tensor("X", 4)
    (jacobian,) = te.gradient(topi.cumsum(X), [X])
    np.testing.assert_array_equal(value(jacobian, {"X": np.ones(4)}), np.tri(4))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_adjoint_of_a_running_sum_is_one_from_the_end(dtype: str) -> None:
    X, H = tensor("X", 3, 6, dtype=dtype), tensor("H", 3, 6, dtype=dtype)
    (grad,) = te.gradient(topi.cumsum(X, axis=1), [X], H)
    (turned,) = (op for op in canonical([grad])[0].ops if isinstance(op, HybridOp))
    assert running_of(turned, turned.axes[1].name) is not None
    head: Array = np.random.default_rng(0).integers(-4, 5, (3, 6)).astype(dtype)
    np.testing.assert_array_equal(value(grad, {"H": head}), head[:, ::-1].cumsum(1)[:, ::-1])


def test_recurrences_along_two_axes_are_refused() -> None:
    table = made(lambda r, i, j: te.if_then_else(te.all(i > 0, j > 0), r[i - 1, j] + r[i, j - 1], A[i, j]))
    with pytest.raises(DefinitionError, match=r"no derivative of R, made by te\.hybrid\.script.*; take"):
        te.gradient(table, [A])
