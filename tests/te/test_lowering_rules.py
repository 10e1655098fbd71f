"""Users' rules for intrinsics, and functions of C's math library, in expressions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tensorlang as tvm
from tensorlang import te, tir
from tensorlang.errors import DefinitionError
from tensorlang.ir import register_intrin_lowering, register_op_attr
from tensorlang.te import lowering_rules


@pytest.fixture(autouse=True)
def _own_rules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(lowering_rules, "_rules", {})
    yield


def run(function: Any, x: Any) -> Any:
    a = te.placeholder(x.shape, str(x.dtype), name="a")
    b = te.compute(x.shape, lambda i: function(a[i]), name="b")
    out = np.zeros(x.shape, b.dtype)
    tvm.build(te.create_schedule(b.op), [a, b])(x, out)
    return out


X = np.linspace(0.5, 2, 7, dtype=np.float32)


def my_math_rule(op: Any) -> Any:
    """As the tutorial of classic te has it."""
    assert isinstance(op, tir.Call) and op.op.name.startswith("tir.")
    dispatch_name = op.op.name[4:]
    if op.dtype == "float32":
        return tir.call_pure_extern("float32", f"{dispatch_name}f", op.args[0])
    if op.dtype == "float64":
        return tir.call_pure_extern("float64", dispatch_name, op.args[0])
    return op


def test_a_name_of_ones_own() -> None:
    def mylog(x: Any) -> Any:
        return tir.call_intrin(x.dtype, "tir.mylog", x)

    def rule(op: Any) -> Any:
        return tir.call_pure_extern(op.dtype, "logf" if op.dtype == "float32" else "log", op.args[0])

    with pytest.raises(DefinitionError, match=r"register_intrin_lowering has a rule for, got tir.mylog of 1"):
        run(mylog, X)
    register_op_attr("tir.mylog", "TCallEffectKind", tir.CallEffectKind.Pure)
    register_intrin_lowering("tir.mylog", target="cuda", f=rule, level=99)
    for x in (X, X.astype(np.float64)):
        np.testing.assert_allclose(run(mylog, x), np.log(x), rtol=1e-6)

    def doubled(op: Any) -> Any:
        return te.log(op.args[0]) * 2

    assert register_intrin_lowering("tir.mylog", target="llvm")(doubled) is doubled
    np.testing.assert_allclose(run(mylog, X), 2 * np.log(X), rtol=1e-6)
    with tvm.target.Target("cuda -arch=sm_80"):
        assert "log" in str(mylog(te.var("x", "float32"))) and "2" not in str(mylog(te.var("x", "float32")))


def test_functions_that_there_are() -> None:
    register_intrin_lowering("tir.exp", target="llvm", f=my_math_rule, level=99)
    np.testing.assert_allclose(run(te.exp, X), np.exp(X), rtol=1e-6)
    register_intrin_lowering("tir.exp", target="llvm", f=lambda op: 0, level=9)  # the higher level stays
    np.testing.assert_allclose(run(te.exp, X), np.exp(X), rtol=1e-6)
    register_intrin_lowering("tir.tanh", target="default", f=lambda op: te.tanh(op.args[0]) + 1)
    np.testing.assert_allclose(run(te.tanh, X), np.tanh(X) + 1, rtol=1e-6)
    np.testing.assert_allclose(run(lambda x: tir.call_intrin("float32", "tir.sqrt", x), X), np.sqrt(X), rtol=1e-6)
    register_intrin_lowering("tir.sin", target="opencl", f=lambda op: 0)
    np.testing.assert_allclose(run(te.sin, X), np.sin(X), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "function"), [("expf", np.exp), ("__logf", np.log), ("fabsf", np.abs), ("rintf", np.rint)]
)
def test_functions_of_c(name: str, function: Any) -> None:
    made = run(lambda x: tir.call_pure_extern("float32", name, x - 1.25 if name != "__logf" else x), X)
    np.testing.assert_allclose(made, function(X - 1.25 if name != "__logf" else X), rtol=1e-5)


def test_what_is_no_rule() -> None:
    with pytest.raises(DefinitionError, match=r"by a name such as 'tir.exp', and a target such as 'llvm', got 'exp'"):
        register_intrin_lowering("exp", target="llvm", f=my_math_rule)
    register_intrin_lowering("tir.none", target="default", f=lambda op: op)
    with pytest.raises(DefinitionError, match=r"the rule for tir.none makes no expression of none\(x"):
        tir.call_intrin("float32", "tir.none", te.var("x", "float32"))
