"""Calls that are given inputs alone make the outputs, and return them."""

from __future__ import annotations

import pickle
from functools import cache
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import te
from tensorlang.errors import ArgumentError
from tensorlang.runtime.executable import Executable
from tests.device_targets import on_cuda, on_opencl

A_ = np.arange(6, dtype=np.float32).reshape(2, 3)


@cache
def kernel(target: str) -> Executable:
    """Sums and row numbers, whose arrays lie on both sides of an input."""
    n = te.var("n")
    A, B = te.placeholder((n, 3), name="A"), te.placeholder((n, 3), name="B")
    C = te.compute((n, 3), lambda i, j: A[i, j] + B[i, j], name="C")
    D = te.compute((n + 1,), lambda i: i.astype("int32"), name="D")
    s = te.create_schedule([C.op, D.op])
    if target not in ("llvm", "interpreter"):
        for stage in (C, D):
            s[stage].bind(s[stage].op.axis[0], te.thread_axis("blockIdx.x"))
    made: Executable = tensorlang.build(s, [A, C, B, D], target=target)
    return made


@pytest.mark.parametrize("target", ["llvm", "interpreter", on_opencl, on_cuda])
def test_outputs_that_are_left_out_are_made(target: str) -> None:
    c, d = kernel(target)(A_, A_)
    assert np.array_equal(c, A_ + A_) and np.array_equal(d, np.arange(3, dtype=np.int32)) and d.dtype == np.int32
    out = np.empty_like(A_)
    assert kernel(target)(A_, out, A_, np.empty(3, np.int32)) is None and np.array_equal(out, c)


def test_one_output_comes_alone_and_survives_pickling() -> None:
    A, k = te.placeholder((4,), "float64", name="A"), te.reduce_axis((0, 4), "k")
    total = te.compute((), lambda: te.sum(A[k], axis=k), name="total")
    f = tensorlang.build(te.create_schedule(total.op), [A, total])
    for one in (f, pickle.loads(pickle.dumps(f))):
        made = one(np.ones(4))
        assert isinstance(made, np.ndarray) and made.shape == () and made == 4


def test_tensors_of_pytorch_in_and_out() -> None:
    torch = pytest.importorskip("torch")
    c, d = kernel("llvm")(torch.from_numpy(A_), torch.from_numpy(A_))
    assert isinstance(c, torch.Tensor) and c.dtype == torch.float32 and d.dtype == torch.int32
    assert np.array_equal(c.numpy(), A_ + A_)


def test_messages_speak_the_language_of_the_array() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(A_)
    for wrong, words in (
        (tensor.double(), r"convert it with \.to\(torch\.float32\)"),
        (tensor.T.contiguous().T, r"pass its \.contiguous\(\)"),
    ):
        for more in ((), (torch.empty(2, 3), torch.empty(3, dtype=torch.int32))):
            given = (wrong, *more[:1], tensor, *more[1:])
            with pytest.raises(ArgumentError, match=rf"argument 1 \(A\): .*; {words}"):
                kernel("llvm")(*given)


def test_what_is_wrong_is_said_as_ever() -> None:
    with pytest.raises(ArgumentError, match=r"takes 4 arguments .*, got 3"):
        kernel("llvm")(A_, A_, A_)
    with pytest.raises(ArgumentError, match=r"argument 3 \(B\) dimension 0: n is 1, but 2"):
        kernel("llvm")(A_, A_[:1])
    with pytest.raises(ArgumentError, match=r"argument 1 \(A\): expected dtype float32, got float64"):
        kernel("llvm")(A_.astype(float), A_)


@te.hybrid.script
def doubled(A: Any) -> Any:
    for i in range(4):
        A[i] = A[i] * 2.0
    return A


def test_arrays_that_are_changed_in_place_are_given() -> None:
    A = te.placeholder((4,), name="A")
    f = tensorlang.build(te.create_schedule(doubled(A).op), [A])
    with pytest.raises(ArgumentError, match="takes 1 arguments"):
        f()


def test_what_a_script_leaves_out_is_zero_in_an_output_that_a_call_makes() -> None:
    @te.hybrid.script
    def front(a):  # type: ignore[no-untyped-def]
        out = te.output_tensor((4000,), "float32")
        for i in range(2):
            out[i] = a[i]
        return out

    x = te.placeholder((4000,), name="x")
    y = front(x)
    made = tensorlang.build(te.create_schedule(y.op), [x, y])(np.ones(4000, np.float32))
    np.testing.assert_array_equal(made, [1, 1] + [0] * 3998)
