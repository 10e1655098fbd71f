"""Arrays on a device in the checks of a call."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tensorlang.errors import ArgumentError
from tensorlang.ir.expr import Buffer, Var, const
from tensorlang.ir.stmt import INDEX
from tensorlang.runtime.arguments import ArgumentCheck
from tensorlang.runtime.device_arrays import DeviceArray, holds, share_memory

n = Var("n", INDEX)


def on_device(
    shape: tuple[int, ...], dtype: str = "float32", start: int = 0, memory: int = 1, **changes: Any
) -> DeviceArray:
    """A contiguous array, unless its strides say otherwise."""
    element = np.dtype(dtype)
    strides = changes.get("strides", np.empty(shape, element).strides)
    return DeviceArray(None, "opencl", element, shape, strides, memory, start)


def check(*given: Any, dtype: str = "float32", outputs: tuple[str, ...] = ("B",)) -> tuple[list[Any], list[int]]:
    """Check arguments for A[n, 4] and B[n, 4]."""
    params = tuple(Buffer(name, (n, const(4, INDEX)), dtype) for name in "AB")
    return ArgumentCheck("f", params, params, (n,), outputs, lambda given: given)(given)


def test_arrays_of_devices_bind_sizes() -> None:
    a, b = on_device((3, 4)), on_device((3, 4), memory=2)
    assert check(a, b) == ([a, b], [3])


def test_arrays_of_devices_mix_with_those_of_numpy() -> None:
    a, b = np.zeros((3, 4), np.float32), on_device((3, 4))
    assert check(a, b)[1] == [3]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (on_device((3, 5)), "expected 4 in dimension 1, got 5"),
        (on_device((3, 4), "float64"), "expected dtype float32, got float64"),
        (on_device((3, 4), strides=(4, 12)), "expected a C-contiguous array"),
        (on_device((3, 4), start=2), "expected data aligned to 4 bytes, got byte 2"),
        (on_device((12,)), "expected 2 dimensions"),
    ],
    ids=["shape", "dtype", "strides", "alignment", "rank"],
)
def test_arrays_of_devices_are_checked(wrong: DeviceArray, why: str) -> None:
    with pytest.raises(ArgumentError, match=why):
        check(wrong, on_device((3, 4), memory=2))


def test_outputs_overlap_nothing() -> None:
    with pytest.raises(ArgumentError, match="output B overlaps A in memory"):
        check(on_device((3, 4)), on_device((3, 4), start=44))
    check(on_device((3, 4)), on_device((3, 4), start=48))
    check(on_device((3, 4)), on_device((3, 4), memory=2))


def test_extents_of_one_have_any_stride() -> None:
    assert on_device((1, 4), strides=(4, 4)).flags.c_contiguous
    assert not on_device((2, 4), strides=(4, 4)).flags.c_contiguous
    assert on_device((0, 4), strides=(4, 8)).flags.c_contiguous


def test_no_byte_is_shared_by_empty_arrays() -> None:
    assert not share_memory(on_device((0, 4)), on_device((3, 4)))
    assert share_memory(on_device((1, 4)), on_device((3, 4)))
    assert not share_memory(np.zeros(3), on_device((3,)))


def test_bits_stand_for_dtypes_that_libraries_lack() -> None:
    bfloat16 = np.dtype(ml_dtypes.bfloat16)
    assert holds(on_device((3,), "uint16"), bfloat16)
    assert not holds(on_device((3,), "int16"), bfloat16)
    assert not holds(np.zeros(3, np.uint16), bfloat16)
    assert holds(on_device((3,), "uint8"), np.dtype(ml_dtypes.float8_e4m3fn))
    assert not holds(on_device((3,), "uint16"), np.dtype(ml_dtypes.float8_e4m3fn))
    assert holds(on_device((3,), "uint8"), np.dtype(bool))
    assert not holds(on_device((3,), "uint16"), np.dtype(np.float16))
