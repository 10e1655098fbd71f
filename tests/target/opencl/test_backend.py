"""The opencl backend: executables of kernels in host form, their sources, and their way to another process."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tensorlang.errors import MissingDependency, TargetError
from tensorlang.ir.expr import Buffer, Const, Load, Var, binary, const
from tensorlang.ir.stmt import INDEX, Allocate, DeviceKernel, Fail, If, Kernel, Launch, Seq, Store
from tensorlang.runtime.executable import Executable
from tensorlang.target.opencl import devices, runtime
from tensorlang.target.opencl.backend import BACKEND
from tensorlang.target.opencl.runtime import OpenclDevice
from tensorlang.target.spec import Target

n = Var("n", INDEX)
HERE = Target("opencl")
A, B, T = (Buffer(name, (n,), "float32") for name in "ABT")
element = Var("blockIdx.x", INDEX) * 32 + Var("threadIdx.x", INDEX)


def scaled(name: str, source: Buffer, result: Buffer) -> DeviceKernel:
    """result = 3 source, which must not be negative."""
    value = Load(source, (element,))
    store = Store(result, (element,), binary("mul", value, const(3, "float32")))
    body = If(element < n, If(value < const(0, "float32"), Fail(f"{source.name} is negative"), store))
    one = Const(1, INDEX)
    return DeviceKernel(name, (source, result), (n,), ((n + 31) // 32, one, one), (32, 1, 1), (), body)


def host_form() -> Kernel:
    """B = 9 A, by two kernels."""
    launches = (Launch(scaled("first", A, T), (n,)), Launch(scaled("second", T, B), (n,)))
    return Kernel("main", (A, B), (n,), ("B",), Allocate(T, Seq(launches)))


def check(executable: Executable, size: int = 100) -> None:
    """Run and compare."""
    a, b = np.arange(size, dtype=np.float32), np.zeros(size, np.float32)
    executable(a, b)
    np.testing.assert_array_equal(b, 9 * a)


@pytest.mark.usefixtures("device")
def test_kernels_run_and_show_their_sources() -> None:
    executable = BACKEND.compile(host_form(), HERE)
    assert executable.source_forms == ("loops", "opencl", "host")
    text = executable.source("opencl")
    assert text.count("__kernel ") == 2 and executable.get_source() == text
    assert "launch('first'" in executable.source("host")
    check(executable)


@pytest.mark.usefixtures("device")
def test_the_caller_s_order_of_arguments() -> None:
    executable = BACKEND.compile(host_form(), HERE, (B, n, A))
    a, b = np.ones(5, np.float32), np.zeros(5, np.float32)
    executable(b, 5, a)
    assert b.tolist() == [9] * 5


@pytest.mark.usefixtures("device")
def test_packed_kernels_run_where_they_are_unpacked() -> None:
    packed = BACKEND.pack(host_form(), HERE)
    executable = BACKEND.unpack(packed, HERE)
    check(executable)
    assert "first" in executable.source("opencl")


def test_sources_need_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "devices", tuple)
    executable = BACKEND.compile(host_form(), HERE)
    assert "__kernel " in executable.source("opencl")
    with pytest.raises(TargetError, match="no OpenCL driver is installed"):
        check(executable)


def test_sources_need_no_pyopencl(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise MissingDependency("pip install 'tensorlang[opencl]'")

    monkeypatch.setattr(devices, "devices", missing)
    executable = BACKEND.compile(host_form(), HERE)
    with pytest.raises(MissingDependency, match="pip install"):
        check(executable)


def test_a_kernel_for_another_device_shows_its_source(device: OpenclDevice) -> None:
    executable = BACKEND.compile(host_form(), Target("opencl", cpu="Voodoo"))
    assert "__kernel " in executable.source("opencl")
    with pytest.raises(TargetError, match=f"no OpenCL device -device=Voodoo; there are .*{device.platform[:5]}"):
        check(executable)


def test_what_the_device_lacks_is_refused_when_built(device: OpenclDevice) -> None:
    kernel = scaled("big", A, B)
    block = (device.threads * 2, 1, 1)
    big = DeviceKernel("big", kernel.params, kernel.scalars, kernel.grid, block, (), kernel.body)
    with pytest.raises(TargetError, match=r"threads \(allowed: "):
        BACKEND.compile(Kernel("main", (A, B), (n,), ("B",), Launch(big, (n,))), HERE)
    rows = Buffer("S", (const(device.local_bytes // 4 + 1, INDEX),), "float32")
    store = Seq((Store(rows, (Const(0, INDEX),), Load(A, (Const(0, INDEX),))), kernel.body))
    large = DeviceKernel("large", kernel.params, kernel.scalars, kernel.grid, kernel.block, (rows,), store)
    with pytest.raises(TargetError, match=r"large: \d+ bytes of shared memory a block \(allowed: "):
        BACKEND.compile(Kernel("main", (A, B), (n,), ("B",), Launch(large, (n,))), HERE)


@pytest.mark.usefixtures("device")
def test_float64_is_refused_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    D, E = (Buffer(name, (n,), "float64") for name in "DE")
    store = If(element < n, Store(E, (element,), Load(D, (element,))))
    kernel = scaled("k", A, B)
    wide = DeviceKernel("k", (D, E), kernel.scalars, kernel.grid, kernel.block, (), store)
    program = Kernel("main", (D, E), (n,), ("E",), Launch(wide, (n,)))
    BACKEND.compile(program, HERE)
    known = runtime.described
    plain = {d: _without(known(d.handle), "cl_khr_fp64") for d in runtime.devices()}
    monkeypatch.setattr(runtime, "described", lambda handle: plain[known(handle)])
    with pytest.raises(TargetError, match=r"main needs float64 \(cl_khr_fp64\), which .* does not have"):
        BACKEND.compile(program, HERE)


def _without(device: OpenclDevice, extension: str) -> OpenclDevice:
    return replace(device, extensions=device.extensions - {extension})
