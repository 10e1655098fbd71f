"""Arrays on OpenCL devices in classic te's dress."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tensorlang import nd
from tensorlang.errors import ArgumentError, MissingDependency, TargetError
from tensorlang.runtime.arrays import as_array
from tensorlang.runtime.device_arrays import DeviceArray
from tensorlang.target.opencl import memory
from tensorlang.target.opencl.memory import as_opencl_array

pytestmark = pytest.mark.usefixtures("device")
HERE = nd.device("opencl")


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "int8", "uint64", "bool", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]
)
def test_arrays_go_there_and_back(dtype: Any) -> None:
    values = (np.arange(12).reshape(3, 4) % 5).astype(dtype)
    array = nd.array(values, HERE)
    assert (array.shape, array.ndim, array.dtype, array.device) == ((3, 4), 2, np.dtype(dtype).name, HERE)
    np.testing.assert_array_equal(array.numpy(), values)
    assert array.numpy().dtype == values.dtype
    np.testing.assert_array_equal(array.copyto(nd.cpu()).numpy(), values)
    np.testing.assert_array_equal(nd.array(np.zeros_like(values)).copyto(HERE).numpy(), np.zeros_like(values))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1, 1, 1)])
def test_shapes_without_extent_or_elements(shape: tuple[int, ...]) -> None:
    values = np.ones(shape, np.float32)
    np.testing.assert_array_equal(nd.array(values, HERE).numpy(), values)


def test_elements_are_read_and_written() -> None:
    array = nd.empty((2, 3), "int32", HERE)
    array.copyfrom(np.arange(6.0).reshape(2, 3))
    array[1, 2] = 50
    assert array[1].tolist() == [3, 4, 50] and len(array) == 2
    assert np.asarray(array).sum() == 60 and "opencl(0)" in repr(array)
    with pytest.raises(ValueError, match="cannot be seen as None without a copy"):
        np.array(array, copy=False)
    with pytest.raises(ArgumentError, match="copyfrom needs shape"):
        array.copyfrom(np.zeros(3))


def test_devices_are_numbered() -> None:
    assert HERE.exist and not nd.device("opencl", 99).exist
    HERE.sync()
    with pytest.raises(TargetError, match="no OpenCL device 99; there are 0: "):
        nd.empty((3,), device=nd.device("opencl", 99))


def test_what_a_kernel_sees_of_an_array(queue: Any) -> None:
    array = nd.array(np.zeros((2, 5), np.float32), HERE)
    seen = as_opencl_array(array)
    assert isinstance(seen, DeviceArray)
    assert (seen.value, seen.shape, seen.strides, seen.start) == (array.data, (2, 5), (20, 4), 0)
    part = as_opencl_array(array.data[1:])
    assert isinstance(part, DeviceArray) and (part.memory, part.start) == (seen.memory, 20)
    assert isinstance(as_opencl_array(np.ones(2)), np.ndarray)
    with pytest.raises(TypeError, match="expected an array, got list"):
        as_opencl_array([1.0])


def test_a_cpu_kernel_refuses_arrays_of_devices() -> None:
    with pytest.raises(TypeError, match=r"got one on opencl\(0\); pass what its .numpy\(\) returns"):
        as_array(nd.array(np.zeros(3), HERE))


def test_a_machine_without_pyopencl_has_no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise MissingDependency("no pyopencl")

    monkeypatch.setattr(memory, "devices", missing)
    assert memory.MEMORY.count() == 0 and not HERE.exist
