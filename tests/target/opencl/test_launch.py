"""Calls of OpenCL kernels whose text is written by hand: arrays, copies, scratch, queues, faults, limits, the cache."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tensorlang import config, nd
from tensorlang.errors import ArgumentError, InternalError, KernelError, TargetError
from tensorlang.ir.expr import Buffer, Const, Var, const
from tensorlang.ir.stmt import INDEX, Allocate, DeviceKernel, Kernel, Launch, Seq, Stmt
from tensorlang.runtime.executable import Executable
from tensorlang.runtime.host_program import host_program
from tensorlang.target.c_source.source import Module, Source
from tensorlang.target.opencl import runtime
from tensorlang.target.opencl.launch import OpenclLaunch, Program
from tensorlang.target.opencl.memory import as_opencl_array
from tensorlang.target.opencl.runtime import OpenclDevice
from tensorlang.target.spec import Target

n = Var("n", INDEX)
ONE, BLOCK = Const(1, INDEX), (64, 1, 1)
SCALE = """
__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void scale(__global const {0}* restrict A, __global {0}* restrict B, long n) {{
    long i = get_global_id(0);
    if (i < n) B[i] = A[i] + A[i];
}}
"""
CHECKED = """
__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void checked(__global const float* restrict A, __global float* restrict B, long n, __global int* fault) {
    long i = get_global_id(0);
    if (i >= n) return;
    if (A[i] < 0) { atomic_cmpxchg(fault, 0, 2); return; }
    B[i] = A[i];
}
"""


def buffer(name: str, dtype: str = "float32") -> Buffer:
    """name[n]."""
    return Buffer(name, (n,), dtype)


def device_kernel(name: str, *params: Buffer, block: tuple[int, int, int] = BLOCK) -> DeviceKernel:
    """A kernel over n elements, whose text is elsewhere."""
    return DeviceKernel(name, params, (n,), ((n + block[0] - 1) // block[0], ONE, ONE), block, (), Seq(()))


def program(body: Stmt, text: str, dtype: str = "float32", target: str = "", **source: Any) -> tuple[Kernel, Program]:
    """B = f(A) by these launches of the kernels of a text."""
    kernel = Kernel("main", (buffer("A", dtype), buffer("B", dtype)), (n,), ("B",), body)
    host = host_program(kernel)
    messages = source.get("messages", ())
    module = Module(text, tuple(Source(text, k.name, **source) for k in host.kernels), messages)
    return kernel, Program(host, module, ("A", "B"), ("B",), Target("opencl", cpu=target))


def executable(body: Stmt, text: str, dtype: str = "float32", target: str = "", **source: Any) -> Executable:
    """The callable of `program`."""
    kernel, made = program(body, text, dtype, target, **source)
    launch = OpenclLaunch(made)
    return Executable(kernel, made.target, launch, convert=as_opencl_array, stopwatch=launch.seconds)


def scale(dtype: str = "float32", word: str = "float", target: str = "") -> Executable:
    """B = A + A."""
    body = Launch(device_kernel("scale", buffer("A", dtype), buffer("B", dtype)), (n,))
    return executable(body, SCALE.format(word), dtype, target)


def twice() -> Executable:
    """B = (A + A) + (A + A), by two kernels and an array between them."""
    T = buffer("T")
    first = Launch(device_kernel("scale", buffer("A"), T), (n,))
    second = Launch(device_kernel("scale2", T, buffer("B")), (n,))
    text = SCALE.format("float")
    return executable(Allocate(T, Seq((first, second))), text + text.replace("scale", "scale2"))


def checked() -> Executable:
    """B = A, and a fault where A is negative."""
    body = Launch(device_kernel("checked", buffer("A"), buffer("B")), (n,))
    return executable(body, CHECKED, uses_fault=True, messages=("never", "A is negative"))


def on_device(queue: Any, values: Any) -> Any:
    """A copy as an array of pyopencl."""
    return runtime.arrays().to_device(queue, values)


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("size", [0, 1, 63, 64, 1000])
def test_numpy_arrays_are_copied_in_and_out(size: int) -> None:
    a, b = np.arange(size, dtype=np.float32), np.zeros(size, np.float32)
    scale()(a, b)
    np.testing.assert_array_equal(b, a + a)


def test_arrays_on_the_device_stay_there(queue: Any) -> None:
    a = np.arange(100, dtype=np.float32)
    given, result = on_device(queue, a), on_device(queue, np.zeros(100, np.float32))
    scale()(given, result)
    np.testing.assert_array_equal(result.get(), a + a)
    there = np.zeros(100, np.float32)
    scale()(given, there)
    np.testing.assert_array_equal(there, a + a)
    scale()(there, result)
    np.testing.assert_array_equal(result.get(), 4 * a)


def test_views_of_arrays_start_where_they_start(queue: Any) -> None:
    a = np.arange(512, dtype=np.float32)
    given, result = on_device(queue, a), on_device(queue, np.zeros(512, np.float32))
    scale()(given[256:], result[:256])
    np.testing.assert_array_equal(result.get()[:256], 2 * a[256:])
    with pytest.raises(
        ArgumentError,
        match="main: A: expected an array that starts at a multiple of 128 bytes of its buffer, got 4; pass a copy",
    ):
        scale()(given[1:], result[:511])
    with pytest.raises(ArgumentError, match="output B overlaps A in memory"):
        scale()(given[:300], given[200:500])
    with pytest.raises(ArgumentError, match="C-contiguous"):
        scale()(given[::2], result[:256])


def test_empty_arrays_on_the_device(queue: Any) -> None:
    nothing = runtime.arrays().empty(queue, (0,), np.float32)
    scale()(nothing, runtime.arrays().empty(queue, (0,), np.float32))


@pytest.mark.usefixtures("device")
def test_bfloat16_is_its_bits() -> None:
    a, b = np.array([1, 2, 3], ml_dtypes.bfloat16), np.zeros(3, ml_dtypes.bfloat16)
    body = Launch(device_kernel("scale", buffer("A", "bfloat16"), buffer("B", "bfloat16")), (n,))
    f = executable(body, SCALE.format("ushort").replace("A[i] + A[i]", "A[i] + 0x80"), "bfloat16")
    f(a, b)
    np.testing.assert_array_equal(b, 2 * a)
    given, result = (nd.array(x, nd.device("opencl")) for x in (b, a))
    f(given, result)
    assert result.dtype == "bfloat16"
    np.testing.assert_array_equal(result.numpy(), 2 * b)


def test_two_queues_of_one_context_wait_for_each_other(queue: Any) -> None:
    cl = runtime.library()
    other = cl.CommandQueue(queue.context)
    a = np.arange(1 << 16, dtype=np.float32)
    given, middle = on_device(queue, a), on_device(other, np.zeros(1 << 16, np.float32))
    result = on_device(queue, np.zeros(1 << 16, np.float32))
    f = scale()
    f(given, result)
    held = cl.UserEvent(queue.context)
    cl.enqueue_barrier(queue, wait_for=[held])
    f(given, middle)
    f(middle, result)
    time.sleep(0.05)  # whatever does not wait runs now, on what is not there yet
    held.set_status(cl.command_execution_status.COMPLETE)
    np.testing.assert_array_equal(result.get(), 4 * a)
    np.testing.assert_array_equal(middle.get(), 2 * a)


def test_queues_that_reorder_are_kept_in_order(device: OpenclDevice, queue: Any) -> None:
    cl = runtime.library()
    mode = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    if not device.handle.queue_properties & mode:
        pytest.skip(f"{device} has no queues that reorder")
    free = cl.CommandQueue(queue.context, properties=mode)
    a = np.arange(1 << 16, dtype=np.float32)
    f = twice()
    given, result = on_device(free, a), on_device(free, np.zeros(1 << 16, np.float32))
    for _ in range(5):
        f(given, result)
    free.finish()
    np.testing.assert_array_equal(result.get(), 4 * a)
    there = np.zeros_like(a)
    for k in range(5):
        f(a + k if k % 2 else on_device(free, a + k), there)
        np.testing.assert_array_equal(there, 4 * (a + k))


def test_arrays_of_two_contexts_are_refused(device: OpenclDevice, queue: Any) -> None:
    cl = runtime.library()
    context = cl.Context([device.handle])
    other = cl.CommandQueue(context)
    a = np.zeros(8, np.float32)
    with pytest.raises(ArgumentError, match="expected arrays of one device and context"):
        scale()(on_device(queue, a), on_device(other, a))
    result = on_device(other, a)
    scale()(on_device(other, a + 1), result)
    np.testing.assert_array_equal(result.get(), a + 2)


def test_scratch_is_kept_between_calls(queue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    f = twice()
    a, b = np.arange(777, dtype=np.float32), np.zeros(777, np.float32)
    f(a, b)
    np.testing.assert_array_equal(b, 4 * a)
    monkeypatch.setattr(runtime.Pool, "_create", None)
    f(2 * a, b)
    np.testing.assert_array_equal(b, 8 * a)
    with pytest.raises(TypeError):
        f(a[:500], b[:500])


@pytest.mark.usefixtures("device")
def test_faults_are_kernel_errors() -> None:
    f, b = checked(), np.zeros(100, np.float32)
    a = np.arange(100, dtype=np.float32)
    f(a, b)
    np.testing.assert_array_equal(b, a)
    with pytest.raises(KernelError, match="main: A is negative"):
        f(a - 50, b)
    f(a, b)


def test_faults_of_arrays_on_the_device_are_raised_too(queue: Any) -> None:
    a = np.arange(100, dtype=np.float32)
    with pytest.raises(KernelError, match="A is negative"):
        checked()(on_device(queue, -a), on_device(queue, a))


@pytest.mark.usefixtures("device")
def test_threads_may_call_one_executable() -> None:
    f = scale()

    def call(value: int) -> Any:
        b = np.zeros(5000, np.float32)
        f(np.full(5000, value, np.float32), b)
        return b

    with ThreadPoolExecutor(4) as threads:
        for value, b in enumerate(threads.map(call, range(160))):
            np.testing.assert_array_equal(b, 2 * value)


def test_kernels_that_do_not_fit_are_refused_before_they_are_built(device: OpenclDevice, queue: Any) -> None:
    too_many = device.threads * 2
    one = Launch(device_kernel("scale", buffer("A"), buffer("B"), block=(too_many, 1, 1)), (n,))
    _, made = program(one, "no text at all")
    with pytest.raises(TargetError, match=rf"{too_many} threads \(allowed: {device.threads} on "):
        OpenclLaunch(made).load(queue)
    fits = Launch(device_kernel("scale", buffer("A"), buffer("B")), (n,))
    _, made = program(fits, "no text at all", shared_bytes=device.local_bytes + 1)
    with pytest.raises(TargetError, match=rf"{device.local_bytes + 1} bytes .* \(allowed: {device.local_bytes}\)"):
        OpenclLaunch(made).load(queue)
    _, made = program(fits, "#pragma OPENCL EXTENSION cl_khr_nonsense : enable\n")
    with pytest.raises(TargetError, match=r"main needs cl_khr_nonsense, which .* does not have"):
        OpenclLaunch(made).load(queue)


def test_text_that_the_driver_refuses_is_our_bug(queue: Any) -> None:
    fits = Launch(device_kernel("scale", buffer("A"), buffer("B")), (n,))
    _, made = program(fits, "__kernel void scale( { nonsense }")
    with pytest.raises(InternalError, match=r"does not build a kernel(.|\n)*nonsense"):
        OpenclLaunch(made).load(queue)


def test_built_code_is_found_on_disk(queue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scale("int32", "int")(np.ones(3, np.int32), np.zeros(3, np.int32))

    def build(*_: Any) -> Any:
        raise AssertionError("built again")

    monkeypatch.setattr(runtime, "build", build)
    b = np.zeros(3, np.int32)
    scale("int32", "int")(np.ones(3, np.int32), b)
    assert b.tolist() == [2, 2, 2]
    with pytest.raises(AssertionError, match="built again"):
        scale("int32", "uint")(np.ones(3, np.int32), b)


@pytest.mark.usefixtures("device")
def test_without_the_cache_programs_are_built_each_time() -> None:
    with config.override(cache=False):
        b = np.zeros(3, np.float32)
        scale()(np.ones(3, np.float32), b)
    assert b.tolist() == [2, 2, 2]


def test_code_that_the_driver_no_longer_takes_is_built_again(
    queue: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with config.override(cache_dir=tmp_path, log="cache"):
        for stale in (True, False, False):
            with monkeypatch.context() as patched:
                if stale:
                    patched.setattr(runtime, "binary", lambda program: b"stale")
                b = np.zeros(3, np.float32)
                scale()(np.ones(3, np.float32), b)
                assert b.tolist() == [2, 2, 2]
    told = [line.split()[1] for line in capsys.readouterr().err.splitlines()]
    assert told == ["makes", "cannot", "makes", "found"]


def test_a_target_names_its_device(device: OpenclDevice, queue: Any) -> None:
    a, b = np.ones(3, np.float32), np.zeros(3, np.float32)
    scale(target=device.name.upper())(a, b)
    assert b.tolist() == [2, 2, 2]
    with pytest.raises(TargetError, match=r"no OpenCL device -device=Voodoo; there are .*" + device.name.split("(")[0]):
        scale(target="Voodoo")(a, b)
    with pytest.raises(ArgumentError, match="built for -device=Voodoo, got arrays on"):
        scale(target="Voodoo")(on_device(queue, a), on_device(queue, b))


def test_memory_that_is_not_there_is_a_memory_error(device: OpenclDevice, queue: Any) -> None:
    with pytest.raises(MemoryError, match="bytes of device memory"):
        runtime.pool(queue).take(1 << 50)


def test_time_of_arrays_on_the_device_is_that_of_their_work(queue: Any) -> None:
    a, b = (on_device(queue, np.zeros(1 << 20, np.float32)) for _ in range(2))
    timing = scale().time_evaluator(number=5, repeat=2)(a, b)
    assert len(timing.results) == 2 and timing.min > 20e-6  # 8 MB cannot be moved in less


def test_const_extents_are_launched(queue: Any) -> None:
    kernel = device_kernel("scale", buffer("A"), buffer("B"))
    fixed = replace(kernel, grid=(const(2, INDEX), ONE, ONE))
    a, b = np.ones(100, np.float32), np.zeros(100, np.float32)
    executable(Launch(fixed, (n,)), SCALE.format("float"))(a, b)
    assert b.tolist() == [2] * 100
