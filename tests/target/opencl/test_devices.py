"""Which OpenCL device a target means, and what it allows."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest

from tensorlang.errors import MissingDependency, TargetError
from tensorlang.ir.expr import Const
from tensorlang.ir.stmt import INDEX, DeviceKernel, Seq
from tensorlang.target.detect import parse
from tensorlang.target.opencl import devices, runtime
from tensorlang.target.opencl.devices import check_extensions, check_fits, chosen_device, device_limits
from tensorlang.target.opencl.runtime import OpenclDevice
from tensorlang.target.spec import Target

ONE = Const(1, INDEX)
GPU = OpenclDevice(
    platform="Vendor CL",
    name="Fast GPU",
    driver="1",
    is_gpu=True,
    threads=256,
    block=(256, 256, 64),
    local_bytes=65536,
    warp=64,
    cores=60,
    extensions=frozenset({"cl_khr_fp16"}),
    exact_division=True,
    handle=None,
)
CPU = replace(GPU, name="Slow CPU", platform="Portable Computing Language", is_gpu=False, threads=4096)


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a GPU and a CPU."""
    monkeypatch.setattr(devices, "devices", lambda: (GPU, CPU))


def kernel(*block: int) -> DeviceKernel:
    """A kernel with blocks of this shape."""
    x, y, z = block
    return DeviceKernel("k", (), (), (ONE, ONE, ONE), (x, y, z), (), Seq(()))


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize(("text", "wanted"), [("", GPU), ("slow", CPU), ("PORTABLE", CPU), ("cl / fast", GPU)], ids=str)
def test_a_device_is_named_by_a_part_of_its_name(text: str, wanted: OpenclDevice) -> None:
    assert chosen_device(Target("opencl", cpu=text)) is wanted


@pytest.mark.usefixtures("two")
def test_an_unknown_device_is_refused_with_those_there_are() -> None:
    with pytest.raises(TargetError, match=r"-device=Voodoo; there are Vendor CL / Fast GPU; Portable.* / Slow CPU"):
        chosen_device(Target("opencl", cpu="Voodoo"))


def test_a_machine_without_drivers_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "devices", tuple)
    with pytest.raises(TargetError, match=r"no OpenCL driver is installed.* intel-opencl-rt .*pocl-opencl-icd"):
        chosen_device(Target("opencl"))


def test_without_pyopencl_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    with pytest.raises(MissingDependency, match=r"pip install 'tensorlang\[opencl\]'"):
        runtime.library.__wrapped__()


@pytest.mark.usefixtures("two")
def test_limits_are_the_device_s_where_the_target_has_no_lower_ones() -> None:
    assert device_limits(parse("opencl")) == GPU.limits
    assert device_limits(Target("opencl")).max_threads == 256
    lower = device_limits(parse("opencl -max_num_threads=128 -max_shared_memory_per_block=1024"))
    assert (lower.max_threads, lower.shared_bytes, lower.warp) == (128, 1024, 64)
    assert device_limits(parse("opencl -max_num_threads=2048")).max_threads == 256
    assert device_limits(parse("opencl -device=slow")).max_threads == 4096


@pytest.mark.parametrize(
    ("block", "shared", "why"),
    [
        ((257, 1, 1), 0, r"blocks of 257 x 1 x 1 = 257 threads \(allowed: 256 on Vendor CL / Fast GPU\)"),
        ((1, 1, 128), 0, r"blocks of 128 threads along threadIdx.z \(allowed: 64 on"),
        ((16, 16, 1), 65537, r"65537 bytes of shared memory a block \(allowed: 65536\)"),
    ],
    ids=["threads", "axis", "shared"],
)
def test_what_does_not_fit_is_refused(block: tuple[int, int, int], shared: int, why: str) -> None:
    with pytest.raises(TargetError, match=why):
        check_fits(kernel(*block), shared, GPU)


def test_what_fits_passes() -> None:
    check_fits(kernel(16, 16, 1), 65536, GPU)
    check_extensions("main", "#pragma OPENCL EXTENSION cl_khr_fp16 : enable\nint f;", GPU)


def test_dtypes_that_the_device_lacks_are_named() -> None:
    text = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n"
    with pytest.raises(TargetError, match=r"main needs float64 \(cl_khr_fp64\), which Vendor CL / Fast GPU does not"):
        check_extensions("main", text, GPU)


def test_devices_tell_their_limits(device: OpenclDevice) -> None:
    assert device.threads >= 1 and min(device.block) >= 1 and device.local_bytes >= 1024
    assert chosen_device(Target("opencl", cpu=device.name)).name == device.name
    assert runtime.described(device.handle) is runtime.described(device.handle)


def test_gpus_come_first_and_pocl_last(monkeypatch: pytest.MonkeyPatch) -> None:
    class Platform:
        def __init__(self, *found: OpenclDevice) -> None:
            self.found = found

        def get_devices(self) -> tuple[OpenclDevice, ...]:
            return self.found

    class Library:
        Error = RuntimeError

        @staticmethod
        def get_platforms() -> list[Any]:
            return [Platform(CPU), Platform(replace(CPU, platform="Vendor CL")), Platform(GPU)]

    monkeypatch.setattr(runtime, "library", Library)
    monkeypatch.setattr(runtime, "described", lambda handle: handle)
    assert runtime.devices.__wrapped__() == (GPU, replace(CPU, platform="Vendor CL"), CPU)
