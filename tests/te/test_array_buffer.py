"""Arrays of arguments that classic programs declare: compared with tensors, and taken as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorlang as tvm
from tensorlang import te
from tensorlang.errors import DefinitionError


def plus_one() -> tuple[Any, Any, Any]:
    n = te.var("n")
    A = te.placeholder((n, 4), name="A")
    B = te.compute((n, 4), lambda i, j: A[i, j] + 1, name="B")
    return n, A, B


def test_buffers_are_bound_to_tensors() -> None:
    n, A, B = plus_one()
    a = tvm.tir.decl_buffer(A.shape, A.dtype, name="a", strides=[te.var("s0"), 1], elem_offset=te.var("at"))
    b = tvm.tir.decl_buffer((n, 4), name="b", offset_factor=16)
    s = te.create_schedule(B.op)
    assert "B[i, j] = A[i, j] + 1.0" in str(tvm.lower(s, [A, B], binds={A: a, B: b}))
    made = np.zeros((3, 4), np.float32)
    tvm.build(s, [A, B], binds={A: a, B: b})(np.arange(12, dtype=np.float32).reshape(3, 4), made)
    np.testing.assert_array_equal(made.ravel(), np.arange(1, 13))


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda n: te.decl_buffer((n, 5)), r"the array of A has the shape \(n, 4\) and the dtype float32"),
        (lambda n: te.decl_buffer((n, 4), "float64"), "the dtype float32, got"),
        (lambda n: te.decl_buffer((n, 4), strides=[8, 1]), "without gaps; buffer has the stride 8"),
        (lambda n: te.decl_buffer((n, 4), strides=[1]), "one stride"),
        (lambda n: 3, "got 3"),
    ],
)
def test_other_arrays_are_refused(declare: Any, message: str) -> None:
    n, A, B = plus_one()
    s = te.create_schedule(B.op)
    with pytest.raises(DefinitionError, match=message):
        tvm.build(s, [A, B], binds={A: declare(n)})
    wrong: Any = {"A": 3}
    with pytest.raises(DefinitionError, match="binds maps tensors to buffers, got 'A'"):
        tvm.lower(s, [A, B], binds=wrong)


def test_buffers_of_whole_array_functions() -> None:
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    held = te.decl_buffer((n,), name="held", strides=[te.var("step")])

    def double(a: Any, out: Any) -> None:
        np.copyto(out, a * 2)

    C = te.extern((n,), [A], double, "C", "float32", [held], [held])
    made = np.zeros(5, np.float32)
    tvm.build(te.create_schedule(C.op), [A, C])(np.ones(5, np.float32), made)
    assert made.tolist() == [2] * 5
    with pytest.raises(DefinitionError, match="the array of output 0 of C"):
        te.extern((n,), [A], double, "C", "float32", None, [te.decl_buffer((n,), "int8")])


def test_pointers_that_read_and_write() -> None:
    tile = te.decl_buffer((8,), name="tile")
    assert str(tile.access_ptr("wr")) == str(tile.access_ptr("rw"))
