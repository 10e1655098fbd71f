"""Numbers are as exact as the dtypes that are asked for, and places do not wrap around in those of what they meet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorlang import te, topi
from tensorlang.errors import DefinitionError
from tests.topi.programs import run


def made(function: Any, *arrays: Any, **named: Any) -> Any:
    """What a function of the library makes of arrays."""
    tensors = [te.placeholder(a.shape, str(a.dtype), f"x{k}") for k, a in enumerate(arrays)]
    return run(function(*tensors, **named), *zip(tensors, arrays, strict=True))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64"])
def test_places_beyond_a_narrow_dtype(dtype: str) -> None:
    rows = np.ones((1, 300), "float32")
    hot = made(topi.one_hot, np.array([44], dtype), on_value=1, off_value=0, depth=301)
    np.testing.assert_array_equal(np.nonzero(hot)[1], [44])
    most = min(200, np.iinfo(dtype).max)
    assert made(topi.sequence_mask, rows, np.array([most], dtype), axis=1).sum() == most
    turned = made(topi.reverse_sequence, np.arange(300, dtype="float32")[None], np.array([100], dtype))
    np.testing.assert_array_equal(turned[0, :101], [*range(99, -1, -1), 100])


def test_numbers_that_only_wide_dtypes_have() -> None:
    given = (
        (topi.full((1,), "float64", 0.1), np.array([0.1])),
        (topi.full((1,), "float64", 1e300), np.array([1e300])),
        (topi.full((1,), "int64", 2**40), np.array([2**40])),
        (topi.full((1,), "uint64", 2**64 - 1), np.array([2**64 - 1], "uint64")),
        (topi.arange(0, 1, 0.1, "float64"), np.arange(0, 1, 0.1)),
        (topi.arange(2**40, 2**40 + 3, dtype="int64"), np.arange(2**40, 2**40 + 3)),
        (topi.arange(5, -4, -2, dtype="int32"), np.array([5, 3, 1, -1, -3], "int32")),
    )
    for tensor, wanted in given:
        np.testing.assert_array_equal(run(tensor), wanted)


def test_numbers_that_nothing_has() -> None:
    image, matrix = te.placeholder((1, 2, 3, 4), name="image"), te.placeholder((3, 4), name="matrix")
    for call in (
        lambda: topi.arange(0, float("inf")),
        lambda: topi.arange(0, float("nan")),
        lambda: topi.upsampling(image, float("nan"), 1.0),
        lambda: topi.stack([matrix, matrix], -4),
        lambda: topi.sliding_window(matrix, 0, [], []),
        lambda: topi.rope_tables(3, 0),
    ):
        with pytest.raises(DefinitionError):
            call()
