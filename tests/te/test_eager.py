"""te.evaluate: what a function of tensors is of some arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorlang import te, topi
from tensorlang.errors import DefinitionError


def test_tensors_and_numbers() -> None:
    made = te.evaluate(topi.add, [[1.0, 2.0]], [[3.0], [4.0]])
    assert made.dtype == np.float32 and np.array_equal(made, [[4, 5], [5, 6]])
    whole = te.evaluate(te.truncdiv, -7, 2)
    assert whole == -3 and whole.dtype == np.int32
    assert te.evaluate(topi.power, [2.0, 3.0], 2.0).tolist() == [4.0, 9.0]


def test_arrays_keep_their_dtype_and_options_may_be_arrays() -> None:
    assert te.evaluate(topi.negative, np.array([1, 2], np.int64)).dtype == np.int64
    assert te.evaluate(topi.take, [1.0, 2.0, 3.0], indices=np.array([2, 0])).tolist() == [3.0, 1.0]


def test_several_tensors_in_and_out() -> None:
    assert te.evaluate(topi.concatenate, ([1, 2], [3])).tolist() == [1, 2, 3]
    values, places = te.evaluate(topi.topk, [3.0, 1.0, 2.0], k=2)
    assert values.tolist() == [3.0, 2.0] and places.tolist() == [0, 2]
    total, size = te.evaluate(lambda a, b: (a + b, topi.shape(topi.full((2,), "int32", 0))), 1, 2)
    assert total == 3 and size.tolist() == [2]


def test_an_input_that_nobody_reads() -> None:
    assert te.evaluate(lambda _, b: b + 1, [9.0], [1.0]).tolist() == [2.0]


@pytest.mark.parametrize("wrong", [None, ["a"], [[1.0], [1.0, 2.0]], {"a": 1}, [1j], te.placeholder((2,))])
def test_what_is_no_array(wrong: object) -> None:
    with pytest.raises(DefinitionError, match=r"te\.evaluate takes arrays and numbers, got "):
        te.evaluate(topi.exp, wrong)


def test_arrays_of_others() -> None:
    class Foreign:
        def __array__(self, dtype: object = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
            return np.ones((2, 3), np.float32)

    assert te.evaluate(topi.sum, Foreign(), axis=1).tolist() == [3.0, 3.0]


@pytest.mark.parametrize("wrong", [2**40, [1, -(2**31) - 1], [1e300], 1e39])
def test_numbers_that_do_not_fit_are_no_other_numbers(wrong: object) -> None:
    with pytest.raises(DefinitionError, match=r"does not fit: numbers of Python are (int|float)32; pass np\.array"):
        te.evaluate(lambda x: x, wrong)
    assert te.evaluate(lambda x: x, [float("inf")]).tolist() == [float("inf")]


def test_arrays_as_numpy_has_them() -> None:
    assert te.evaluate(lambda x: x + 1, np.float64(2.5)).dtype == np.float64
    assert te.evaluate(topi.negative, np.ones(2, ">f4")).tolist() == [-1.0, -1.0]
    with pytest.raises(DefinitionError, match=r"does not see the mask of a masked array; pass a\.filled\(value\)"):
        te.evaluate(topi.exp, np.ma.array([1.0, 2.0], mask=[False, True]))


def test_what_is_no_function() -> None:
    with pytest.raises(DefinitionError, match=r"as in te\.evaluate\(topi\.exp, x\), got Tensor"):
        te.evaluate(topi.softmax(te.placeholder((2, 2))), [1.0])


def test_what_is_no_tensor() -> None:
    with pytest.raises(DefinitionError, match=r"te\.evaluate wants a function that returns tensors, got 3"):
        te.evaluate(lambda _: 3, [1.0])
