"""Words of classic te: ranges, scans, and equal expressions."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

import tensorlang as tvm
from tensorlang import te, tir, topi


def test_ranges_have_a_begin_and_an_end() -> None:
    assert (str(tvm.ir.Range(2, 7).extent), str(tvm.ir.Range(4).min), str(tvm.ir.Range(4).extent)) == ("5", "0", "4")
    k = te.reduce_axis(tvm.ir.Range(1, 5), "k")
    assert (str(k.dom.min), str(k.dom.extent)) == ("1", "4")


def test_scans_are_known() -> None:
    state = te.placeholder((4, 5), name="state")
    init = te.compute((1, 5), lambda t, i: 1.0, name="init")
    made: Any = te.scan(init, te.compute((4, 5), lambda t, i: state[t - 1, i] + 1, name="next"), state)
    assert isinstance(made.op, te.ScanOp) and not isinstance(init.op, te.ScanOp)


def test_equal_expressions() -> None:
    n, x = te.var("n"), te.var("x", "float32")
    assert tvm.ir.structural_equal((n + 1, 3), [n + 1, 3]) and not tvm.ir.structural_equal(n, n + 1)
    tvm.ir.assert_structural_equal(tir.exp(x), te.exp(x))
    with pytest.raises(ValueError, match=r"exp.*is not exp2"):
        tvm.ir.assert_structural_equal(te.exp(x), te.exp2(x))


def test_calls_name_what_they_call() -> None:
    call: Any = te.exp(te.var("x", "float32"))
    assert call.op.name == "tir.exp"


def test_functions_of_expressions_make_expressions() -> None:
    x: Any = te.var("x")
    assert (str(topi.add(x, 1)), str(topi.bitwise_and(x, 3))) == ("x + 1", "x & 3")


def test_errors_have_the_name_of_tvm() -> None:
    error = import_module("tensorlang.error")
    assert issubclass(tvm.DefinitionError, error.TVMError) and error is tvm.error
