"""Python functions inside programs, in both calling forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorlang as tvm
from tensorlang import te
from tensorlang.errors import DefinitionError, KernelError
from tensorlang.te.packed import PackedCall, register_func
from tensorlang.te.program import canonical
from tensorlang.te.reference import evaluate

n = te.var("n")
A = te.placeholder((n,), name="A")
X = np.array([3, 1, 2], "f")


def run(tensor: te.Tensor, *inputs: Any) -> dict[str, Any]:
    return evaluate(canonical([tensor])[0], inputs or (X,))


def test_plain_function_gets_arrays() -> None:
    def ordered(values: Any, out: Any) -> None:
        out[:] = np.sort(values)

    made = te.extern((n,), [A], ordered, name="S")
    after = te.compute((n,), lambda i: made[i] * 2, name="D")
    assert made.dtype == "float32"
    assert run(after)["D"].tolist() == [2, 4, 6]
    assert "extern S: float32[n] = " in canonical([after])[0].text and "ordered(A)" in canonical([after])[0].text


def test_several_outputs_and_dtypes() -> None:
    def split(values: Any, order: Any, total: Any) -> None:
        order[:] = np.argsort(values)
        total[()] = values.sum()

    order, total = te.extern([(n,), ()], [A], split, name="T", dtype=["int64", "float32"])
    assert (order.dtype, order.ndim, total.dtype, total.ndim) == ("int64", 1, "float32", 0)
    got = run(order)
    assert got["T.v0"].tolist() == [1, 2, 0] and got["T.v1"] == 6


def test_call_packed_by_name_gets_ndarrays() -> None:
    seen: list[type] = []

    @register_func("test.add", override=True)
    def add(x: Any, amount: int, y: Any) -> None:
        seen.append(type(x))
        tvm.nd.array(x.numpy() + amount).copyto(y)

    made = te.extern((n,), [A], lambda ins, outs: tvm.tir.call_packed("test.add", ins[0], 5, outs[0]), name="E")
    assert run(made)["E"].tolist() == [8, 6, 7] and seen == [tvm.nd.NDArray]
    assert "call" not in canonical([made])[0].text and "test.add(ins[0], 5, outs[0])" in canonical([made])[0].text


def test_call_packed_of_a_function() -> None:
    def double(x: Any, y: Any) -> None:
        y[:] = x.numpy() * 2

    made = te.extern((n,), A, lambda ins, outs: tvm.tir.call_packed(double, ins[0], outs[0]), name="E")
    assert run(made)["E"].tolist() == [6, 2, 4]


def test_two_parameters_of_other_names_are_told_apart_by_count() -> None:
    pair = te.extern(
        (n,), [A, A], lambda i, o: tvm.tir.call_packed(lambda x, y, z: z.copyfrom(x.numpy() + y.numpy()), *i, *o)
    )
    assert run(pair)["extern"].tolist() == [6, 2, 4]


def test_a_plain_function_that_returns_call_packed_is_refused() -> None:
    made = te.extern((n,), [A], lambda i, o: PackedCall("late", ()), name="E")
    with pytest.raises(KernelError, match="name its parameters ins, outs"):
        run(made)


def test_names_are_looked_up_when_the_kernel_runs() -> None:
    made = te.extern((n,), [A], lambda ins, outs: tvm.tir.call_packed("test.late", ins[0], outs[0]), name="E")
    with pytest.raises(KernelError, match=r"no function is registered as 'test.late'"):
        run(made)
    tvm.register_func("test.late", lambda x, y: y.copyfrom(x), override=True)
    assert run(made)["E"].tolist() == X.tolist()


def test_registry() -> None:
    @register_func
    def registered_by_its_own_name() -> int:
        return 4

    assert tvm.get_global_func("registered_by_its_own_name")() == 4  # type: ignore[misc]
    assert tvm.get_global_func("test.unknown", allow_missing=True) is None
    with pytest.raises(DefinitionError, match=r"no function is registered as 'test.unknown'"):
        tvm.get_global_func("test.unknown")
    with pytest.raises(DefinitionError, match="already registered; pass override=True"):
        tvm.register_func("registered_by_its_own_name", print)


@pytest.mark.parametrize(("function", "args"), [(3, ()), ("test.f", (A,))])
def test_call_packed_checks_its_operands(function: Any, args: tuple[Any, ...]) -> None:
    with pytest.raises(DefinitionError, match="call_packed"):
        tvm.tir.call_packed(function, *args)
