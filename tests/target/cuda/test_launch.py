"""What calls ask of CuPy: copies, devices, streams, scratch memory, faults and errors; on a fake one."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tensorlang import dtypes, nd
from tensorlang.errors import ArgumentError, InternalError, KernelError, TargetError
from tests.target.cuda import foreign_tensors
from tests.target.cuda.device_programs import double, executable, one_launch, two_launches
from tests.target.cuda.fake_cupy import FakeCupy


@pytest.fixture(autouse=True)
def kernels(request: pytest.FixtureRequest) -> None:
    name = "two_devices" if "two_devices" in request.fixturenames else "cupy"
    request.getfixturevalue(name).kernels |= {"double": double, "double_again": double}


def launches(cupy: FakeCupy) -> list[tuple[Any, ...]]:
    return [entry for entry in cupy.log if entry[0] == "launch"]


def test_numpy_arrays_are_copied_there_and_back(cupy: FakeCupy) -> None:
    a, b = np.arange(6, dtype=np.float32), np.zeros(6, np.float32)
    executable(one_launch())(a, b)
    assert np.array_equal(b, 2 * a)
    assert launches(cupy) == [("launch", "double", (2, 1, 1), (4, 1, 1), 0, 0, 0)]
    assert [entry[0] for entry in cupy.log if entry[0] in ("set", "get")] == ["set", "set", "get"]


def test_device_arrays_are_used_where_they_are(cupy: FakeCupy) -> None:
    a, b = cupy.array(np.arange(6, dtype=np.float32)), cupy.array(np.zeros(6, np.float32))
    executable(one_launch())(a, b)
    assert np.array_equal(b.memory, 2 * a.memory)
    assert {entry[0] for entry in cupy.log} == {"load", "launch"}


def test_an_empty_grid_is_not_launched(cupy: FakeCupy) -> None:
    a, b = (cupy.array(np.zeros(0, np.float32)) for _ in range(2))
    executable(one_launch())(a, b)
    assert launches(cupy) == []


def test_calls_go_to_the_current_stream(cupy: FakeCupy) -> None:
    a, b = (cupy.array(np.ones(4, np.float32)) for _ in range(2))
    with cupy.cuda.Stream() as stream:
        executable(one_launch())(a, b)
    assert launches(cupy)[0][5] == stream.ptr != 0


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float16", "bool", "int8", "float64"])
def test_dtypes_travel_as_what_cupy_has(cupy: FakeCupy, dtype: str) -> None:
    d = dtypes.info(dtype)
    stored = np.dtype(d.bits_dtype) if d.is_extension else d.numpy

    def copy(grid: Any, block: Any, a: Any, b: Any, n: Any) -> None:
        assert a.dtype == stored
        b[...] = a

    cupy.kernels["double"] = copy
    f = executable(one_launch(dtype))
    wanted = np.array([0, 1, 1, 0], dtypes.info(dtype).numpy)
    found = np.zeros_like(wanted)
    f(wanted, found)
    assert np.array_equal(found, wanted)
    there, back = cupy.array(wanted.view(stored)), cupy.array(np.zeros(4, stored))
    f(there, back)
    assert np.array_equal(back.memory.view(wanted.dtype), wanted)


def test_scratch_memory_comes_from_the_pool(cupy: FakeCupy) -> None:
    a, b = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    executable(two_launches())(a, b)
    assert np.array_equal(b, 4 * a)
    assert cupy.log.count(("empty", (5,), "float32")) == 3


def test_code_is_loaded_once_for_each_device(two_devices: FakeCupy) -> None:
    f = executable(one_launch())
    for device in (1, 0, 1):
        a, b = (two_devices.array(np.ones(4, np.float32), device) for _ in range(2))
        f(a, b)
    loads = [entry for entry in two_devices.log if entry[0] == "load"]
    assert loads == [("load", b"sm_80", 1), ("load", b"cubin", 0)]
    assert [entry[6] for entry in launches(two_devices)] == [1, 0, 1]


def test_arrays_of_two_devices_are_refused(two_devices: FakeCupy) -> None:
    a, b = (two_devices.array(np.ones(4, np.float32), device) for device in (0, 1))
    with pytest.raises(ArgumentError, match=r"all arrays on one device, got a on device 0, b on device 1"):
        executable(one_launch())(a, b)


def test_code_for_another_architecture_is_refused(two_devices: FakeCupy) -> None:
    f = executable(one_launch())
    f._launch.images.build = None
    a, b = (two_devices.array(np.ones(4, np.float32), 1) for _ in range(2))
    with pytest.raises(TargetError, match=r"built for sm_90a, and CUDA device 1 is an sm_80; build .*-arch=sm_80"):
        f(a, b)


@pytest.mark.parametrize(("shared", "allowed"), [(48 * 1024, []), (64 * 1024, ["double", "double_again"])])
def test_much_shared_memory_is_allowed_once(cupy: FakeCupy, shared: int, allowed: list[str]) -> None:
    f = executable(one_launch(), shared=shared)
    a, b = (cupy.array(np.ones(4, np.float32)) for _ in range(2))
    f(a, b)
    f(a, b)
    assert [entry for entry in cupy.log if entry[0] == "attribute"] == [("attribute", n, 8, shared) for n in allowed]
    assert {entry[4] for entry in launches(cupy)} == {shared}


def test_wide_accesses_need_aligned_arrays(cupy: FakeCupy) -> None:
    a, b = cupy.array(np.ones(4, np.float32), offset=4), cupy.array(np.ones(4, np.float32))
    executable(one_launch())(a, b)
    with pytest.raises(ArgumentError, match=r"expected a to begin at a multiple of 16 bytes, got address 0x.*4; copy"):
        executable(one_launch(), wide=True)(a, b)


def test_a_fault_is_an_error_of_its_call(cupy: FakeCupy) -> None:
    f = executable(two_launches(), fault=True)
    a, b = cupy.array(np.ones(4, np.float32)), cupy.array(np.zeros(4, np.float32))
    f(a, b)
    a.memory[2] = np.inf
    with pytest.raises(KernelError, match="twice: out of range"):
        f(a, b)
    a.memory[2] = 1
    f(a, b)
    assert np.array_equal(b.memory, np.full(4, 4, np.float32))


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (2, MemoryError, "twice: the device has no memory for it: .*; 100 of its 1000 bytes are free"),
        (209, TargetError, "the device does not take its code .* build it for target 'cuda' with no -arch"),
        (700, KernelError, "an address outside .* The device context is lost.* start a new process"),
        (701, TargetError, "more threads, registers or shared memory than there are"),
        (716, KernelError, "a misaligned address"),
        (999, InternalError, "twice: CUDA answers cudaError999"),
    ],
)
def test_errors_of_cuda_come_in_our_words(cupy: FakeCupy, status: int, kind: type[BaseException], words: str) -> None:
    cupy.fail = status
    a, b = (cupy.array(np.ones(4, np.float32)) for _ in range(2))
    with pytest.raises(kind, match=words):
        executable(one_launch())(a, b)


def test_a_full_pool_is_no_memory(cupy: FakeCupy) -> None:
    cupy.full = True
    with pytest.raises(MemoryError, match=r"twice: the device has no memory .* allocating 512 bytes; 100 of its 1000"):
        executable(one_launch())(np.ones(4, np.float32), np.ones(4, np.float32))


def test_arguments_are_checked_before_anything_else(cupy: FakeCupy) -> None:
    f = executable(one_launch())
    a = cupy.array(np.ones(4, np.float32))
    with pytest.raises(ArgumentError, match=r"expected dtype float32, got float64"):
        f(a, cupy.array(np.ones(4)))
    with pytest.raises(ArgumentError, match="n is 5, but 4"):
        f(a, cupy.array(np.ones(5, np.float32)))
    with pytest.raises(ArgumentError, match="output b overlaps a in memory"):
        f(a, a)
    assert cupy.log == []


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e5m2"])
def test_arrays_of_classic_code_are_used_on_their_device(cupy: FakeCupy, dtype: str) -> None:
    def copy(grid: Any, block: Any, a: Any, b: Any, n: Any) -> None:
        b[...] = a

    cupy.kernels["double"] = copy
    place = nd.device("cuda", 0)
    assert place.exist
    assert not nd.device("cuda", 1).exist
    values = np.arange(4).astype(dtypes.info(dtype).numpy)
    a, b = nd.array(values, place), nd.empty((4,), dtype, place)
    executable(one_launch(dtype))(a, b)
    assert np.array_equal(b.numpy(), values)
    found = np.zeros_like(values)
    executable(one_launch(dtype))(nd.array(values), found)
    assert np.array_equal(found, values)


class Tensor:
    """A tensor of PyTorch in device memory."""

    requires_grad = False

    def is_neg(self) -> bool:
        return False

    def __init__(self, memory: npt.NDArray[Any], dtype: str) -> None:
        self.memory, self.dtype, self.device_id = memory, f"torch.{dtype}", 0
        self.device = SimpleNamespace(index=0)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, **options: Any) -> Any:
        raise AssertionError("CuPy takes the capsule")

    def view(self, dtype: npt.DTypeLike) -> Tensor:
        return Tensor(self.memory.view(dtype), str(np.dtype(dtype)))


Tensor.__module__ = "torch"


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch, working on stream 77."""
    stream = SimpleNamespace(cuda_stream=77)
    monkeypatch.setitem(
        sys.modules,
        "torch",
        SimpleNamespace(
            is_grad_enabled=lambda: True,
            int8=np.int8,
            int16=np.int16,
            cuda=SimpleNamespace(current_stream=lambda _: stream),
            compiler=SimpleNamespace(disable=lambda function: function),
        ),
    )


@pytest.mark.usefixtures("torch")
def test_tensors_of_torch_are_used_on_their_stream(cupy: FakeCupy) -> None:
    a, b = (Tensor(np.ones(4, np.float32), "float32") for _ in range(2))
    executable(one_launch())(a, b)
    assert np.array_equal(b.memory, np.full(4, 2, np.float32))
    assert launches(cupy)[0][5] == 77
    assert cupy.log.count(("dlpack", 77)) == 2


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize(("dtype", "sign"), [("bfloat16", np.uint16(0x8000)), ("float8_e5m2", np.uint8(0x80))])
def test_narrow_floats_of_torch_travel_as_their_bits(cupy: FakeCupy, dtype: str, sign: Any) -> None:
    held = dtypes.info(dtype).numpy
    a, b = (Tensor(np.ones(4, held), dtype) for _ in range(2))

    def negate(grid: Any, block: Any, a: Any, b: Any, n: Any) -> None:
        b[...] = a ^ sign

    cupy.kernels["double"] = negate
    executable(one_launch(dtype))(a, b)
    assert np.array_equal(b.memory, -np.ones(4, held))


@pytest.mark.usefixtures("torch")
def test_a_tensor_with_a_gradient_is_refused(cupy: FakeCupy) -> None:
    a, b = (Tensor(np.ones(4, np.float32), "float32") for _ in range(2))
    a.requires_grad = True
    with pytest.raises(ArgumentError, match=r"argument 1 \(a\): it requires a gradient; pass tensor.detach\(\)"):
        executable(one_launch())(a, b)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e5m2", "bool", "int64"])
def test_tensors_that_are_described_in_c(cupy: FakeCupy, dtype: str) -> None:
    def copy(grid: Any, block: Any, a: Any, b: Any, n: Any) -> None:
        b[...] = a

    cupy.kernels["double"] = copy
    held = dtypes.info(dtype).numpy
    whole = np.zeros((2, 4), held)
    whole[0] = np.arange(4).astype(held)
    executable(one_launch(dtype))(foreign_tensors.Tensor(whole[0]), foreign_tensors.Tensor(whole[1]))
    assert np.array_equal(whole[1], whole[0])
    assert launches(cupy)[0][5] == foreign_tensors.STREAM
    assert not [entry for entry in cupy.log if entry[0] == "dlpack"]


def test_tensors_that_are_described_in_c_are_checked(two_devices: FakeCupy) -> None:
    f, memory = executable(one_launch()), np.ones(8, np.float32)
    good, negative, required = (foreign_tensors.Tensor(np.ones(4, np.float32)) for _ in range(3))
    negative.negative = required.requires_grad = True
    for wrong, words in (
        (negative, r"argument 1 \(a\): it is a view of the negatives .* pass tensor.resolve_neg\(\)"),
        (required, r"argument 1 \(a\): it requires a gradient"),
        (foreign_tensors.Tensor(memory[::2]), r"argument 1 \(a\): expected a C-contiguous array"),
        (foreign_tensors.Tensor(memory.astype("float64")), "expected dtype float32, got float64"),
        (foreign_tensors.Tensor(good.memory), "output b overlaps a in memory"),
    ):
        with pytest.raises(ArgumentError, match=words):
            f(wrong, good)
    with pytest.raises(ArgumentError, match="expected all arrays on one device, got a on device 0, b on device 1"):
        f(good, foreign_tensors.Tensor(memory[4:], device=1))
    empty = [foreign_tensors.Tensor(np.zeros(0, np.float32)) for _ in range(2)]
    f(*empty)
    assert launches(two_devices) == []


def test_other_libraries_arrays_are_seen_by_their_interface(cupy: FakeCupy) -> None:
    given = SimpleNamespace(memory=np.ones(4, np.float32), device_id=0, __cuda_array_interface__={})
    b = cupy.array(np.zeros(4, np.float32))
    executable(one_launch())(given, b)
    assert np.array_equal(b.memory, np.full(4, 2, np.float32))
