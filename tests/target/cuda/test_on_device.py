"""CUDA kernels on a device: results, streams, graphs, times, faults, and what the device says of itself.

The device is this machine's GPU, where it has one, and the emulated one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tensorlang.errors import ArgumentError, KernelError
from tensorlang.target import parse
from tensorlang.target.cuda import runtime
from tensorlang.target.cuda.tensor_maps import TensorMap, encoded
from tensorlang.target.gpus import CUDA
from tests.device_targets import needs_cuda, why_no_cuda
from tests.target.cuda.fake_cupy import FakeCupy
from tests.target.cuda.foreign_tensors import Tensor
from tests.target.cuda.vector_programs import SIZES, chained, given, pick

_EMULATED = not why_no_cuda() and isinstance(runtime.cupy(), FakeCupy)


def needs_gpu(test: Callable[..., None]) -> Callable[..., None]:
    """Only where there is silicon."""
    for mark in (*needs_cuda, pytest.mark.skipif(_EMULATED, reason="the device is emulated")):
        test = mark(test)
    return test


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "bfloat16", "int32", "int64", "int8", "float8_e5m2"]
)
@pytest.mark.usefixtures("any_cuda")
def test_numpy_arrays_are_computed(dtype: str) -> None:
    f = chained(dtype)
    for n in SIZES:
        a, b, d = given(n, dtype)
        f(a, b, d)
        assert np.array_equal(d, a + b + b)


def test_device_arrays_are_computed_on_the_current_stream(any_cuda: Any) -> None:
    cupy = any_cuda
    f = chained()
    for stream in (cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)):
        for n in SIZES:
            a, b, d = given(n)
            with stream:
                there = [cupy.asarray(x) for x in (a, b, d)]
                f(*there)
                assert np.array_equal(there[2].get(), a + b + b)


@needs_gpu
def test_tensors_of_torch_are_computed_in_place() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    a, b, d = (torch.from_numpy(x).cuda() for x in given(1000))
    chained()(a, b, d)
    assert torch.equal(d, a + b + b)
    a, b, d = (x.to(torch.bfloat16) for x in (a, b, d))
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        chained("bfloat16")(a, b, d)
        assert torch.equal(d, a + b + b)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e5m2"])
@pytest.mark.usefixtures("emulated_cuda")
def test_tensors_that_are_described_in_c_are_computed_in_place(dtype: str) -> None:
    a, b, d = given(1000, dtype)
    chained(dtype)(*map(Tensor, (a, b, d)))
    assert np.array_equal(d, a + b + b)


def test_a_graph_replays(any_cuda: Any) -> None:
    cupy = any_cuda
    host = given(1000)
    a, b, d = (cupy.asarray(x) for x in host)
    graph = chained().graph(a, b, d)
    for step in range(3):
        a.set(np.full(1000, step, np.float32))
        graph.launch()
        assert np.array_equal(d.get(), step + 2 * host[1])
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    graph.launch(stream)
    stream.synchronize()


@needs_gpu
def test_device_time_is_measured() -> None:
    cupy = runtime.cupy()
    arrays = [cupy.asarray(x) for x in given(1 << 22)]
    f = chained()
    warm = f.time_evaluator(number=20, repeat=3)(*arrays)
    cold = f.time_evaluator(number=5, repeat=3, flush_l2=True)(*arrays)
    # Two kernels that move 24 bytes an element: no device does that in a microsecond, and none takes 10 ms.
    assert 1e-6 < warm.median < 1e-2
    assert 1e-6 < cold.median < 1e-2


def test_a_fault_is_raised_by_its_call(any_cuda: Any) -> None:
    f = pick()
    where = np.array([3, 1, 9, 0], np.int32)
    values, places, found = map(any_cuda.asarray, (np.arange(10, dtype=np.float32), where, np.zeros(4, np.float32)))
    f(values, places, found)
    assert found.get().tolist() == [3, 1, 9, 0]
    where[2] = 10
    places.set(where)
    with pytest.raises(KernelError, match="where"):
        f(values, places, found)
    where[2] = 5
    places.set(where)
    f(values, places, found)
    assert found.get().tolist() == [3, 1, 5, 0]


@needs_gpu
def test_the_table_of_limits_is_the_device_s() -> None:
    own = runtime.architecture_of(runtime.current_device())
    if own not in CUDA:
        pytest.skip(f"the table has no {own}")
    assert runtime.device_limits(parse("cuda")) == CUDA[own]


@needs_gpu
def test_two_devices_are_not_mixed() -> None:
    if runtime.device_count() < 2:
        pytest.skip("one device")
    cupy = runtime.cupy()
    arrays = []
    for device, values in zip((0, 1, 1), given(8), strict=True):
        with cupy.cuda.Device(device):
            arrays.append(cupy.asarray(values))
    with pytest.raises(ArgumentError, match="all arrays on one device"):
        chained()(*arrays)


@needs_gpu
def test_the_driver_encodes_tensor_maps() -> None:
    if runtime.architecture_of(runtime.current_device()) != "sm_90a":
        pytest.skip("no device of compute capability 9.0")
    x = runtime.cupy().zeros((256, 512), np.uint16)
    tiles = TensorMap(int(x.data.ptr), "bfloat16", x.shape, x.strides, (128, 64))
    first = encoded(tiles)
    assert first["opaque"].any()
    assert encoded(tiles) is first
