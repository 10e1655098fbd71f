"""Functions of NumPy and Python on expressions: operators build them, others name what te has."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tensorlang import te
from tensorlang.errors import DefinitionError
from tensorlang.ir.foreign import _IN_TE

A, M = te.placeholder((8,), name="A"), te.placeholder((8, 8), name="M")

WRONG: dict[str, tuple[Callable[[Any], Any], str]] = {
    "np.exp": (lambda i: np.exp(A[i]), r"np\.exp computes numbers, not expressions of a program; use te\.exp"),
    "np.abs": (lambda i: np.abs(A[i]), r"use te\.abs"),
    "np.maximum": (lambda i: np.maximum(A[i], 0), r"use te\.maximum"),  # type: ignore[call-overload]
    "np.arctan2": (lambda i: np.arctan2(2.0, A[i]), r"use te\.atan2"),  # type: ignore[call-overload]
    "np.sum": (lambda i: np.sum(A[i]), r"use te\.sum"),  # type: ignore[call-overload]
    "np.cbrt": (lambda i: np.cbrt(A[i]), "write it with the functions of te"),
    "an axis": (np.sin, r"use te\.sin"),
    "math.sqrt": (lambda i: math.sqrt(A[i]), r"use te\.sqrt\(A\[i\]\)"),
    "float": (lambda i: float(A[i]), r"\.astype\('float32'\) converts"),
    "abs": (lambda i: abs(A[i]), r"use te\.abs"),
    "round": (lambda i: round(A[i]), r"use te\.round"),
    "power": (lambda i: A[i] ** 2, r"use te\.power"),
    "base": (lambda i: 2.0 ** A[i], r"use te\.power"),
    "max": (lambda i: max(A[i], 0.0), r"use te\.maximum\(A\[i\], 0\.0\) instead of max\(\)"),
    "chained": (lambda i: te.if_then_else(0 < A[i] < 1, 1, 0), r"use te\.all\(0 < A\[i\], A\[i\] < 1\)"),
    "a slice": (lambda i: np.exp(M[i]), r"use te\.exp"),
    "a row": (lambda i: M[i, :], r"te\.sum\(A\[i, k\], axis=k\) goes over"),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_function_of_te_is_named(name: str) -> None:
    body, message = WRONG[name]
    with pytest.raises(DefinitionError, match=message):
        te.compute((8,), body)


def test_what_is_named_is_there() -> None:
    assert [name for name in _IN_TE.values() if not hasattr(te, name)] == []


def test_numbers_of_numpy_may_come_first() -> None:
    made = te.compute((8,), lambda i: np.float32(2) * A[i] + (np.int64(1) - i) // np.int32(3), name="C")
    assert str(made.op.body[0]) == str(te.compute((8,), lambda i: 2.0 * A[i] + (1 - i) // 3, name="C").op.body[0])
    compared: list[Callable[[Any], Any]] = [lambda i: np.int32(3) < i, lambda i: np.int64(3) >= i]
    for body in compared:
        assert te.compute((8,), body).dtype == "bool"


def test_functions_of_torch_name_those_of_te() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    wrong: dict[str, Callable[[Any], Any]] = {
        "torch.exp computes tensors of PyTorch, .*use te.exp": lambda i: torch.exp(A[i]),
        "use te.abs": lambda i: torch.abs(A[i]),
        "use topi.relu": lambda i: torch.nn.functional.relu(A[i]),
        "use te.if_then_else": lambda i: torch.where(A[i] > 0, A[i], 0),
        "write it with the functions of te": lambda i: torch.special.bessel_j0(A[i]),
        r"declare the array as te.placeholder\(\(3,\)\)": lambda i: A[i] * torch.ones(3),
        "declare the tensor as te.placeholder": lambda i: torch.add(torch.ones(3), A[i]),
    }
    for message, body in wrong.items():
        with pytest.raises(DefinitionError, match=message):
            te.compute((8,), body)
    assert te.placeholder((8,), torch.bfloat16).dtype == "bfloat16"


def test_a_part_of_a_tensor_waits_for_its_index() -> None:
    with pytest.raises(AttributeError, match=r"has no 'sum'; te.sum\(M\[i, k\], axis=k\)"):
        te.compute((8,), lambda i: M[i].sum())  # type: ignore[attr-defined]


def test_no_index_counts_from_the_end() -> None:
    with pytest.raises(DefinitionError, match=r"no index counts from the end: that is M\[i, 7\]"):
        te.create_schedule(te.compute((8,), lambda i: M[i, -1]).op)
