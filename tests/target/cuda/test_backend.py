"""The way from a schedule to an executable for CUDA, as far as it goes without a GPU; its calls on a fake CuPy."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tensorlang import te
from tensorlang.driver import build, lower
from tensorlang.errors import ArgumentError, OneThread, TargetError
from tensorlang.ir.construct import array, index, load, store
from tensorlang.ir.expr import Var, const
from tensorlang.ir.stmt import INDEX, Barrier, Combiner, DeviceKernel, If, Kernel, Launch, Seq, ThreadReduce
from tensorlang.schedule import Schedule
from tensorlang.target import parse
from tensorlang.target.backend import backend
from tensorlang.target.cuda.executable import CudaExecutable
from tensorlang.target.cuda.sass import disassembler
from tests.target.cuda.compiled import needs_nvrtc
from tests.target.cuda.fake_cupy import ATTRIBUTES, FakeCupy

pytestmark = needs_nvrtc


def add() -> tuple[Schedule, list[Any]]:
    """`c = a + b` over n elements, one a thread."""
    n = te.var("n")
    a, b = (te.placeholder((n,), name=name) for name in "ab")
    c = te.compute((n,), lambda i: a[i] + b[i], name="c")
    s = te.create_schedule(c.op)
    outer, inner = s[c].split(c.op.axis[0], factor=64)
    s[c].bind(outer, te.thread_axis("blockIdx.x"))
    s[c].bind(inner, te.thread_axis("threadIdx.x"))
    return s, [a, b, c]


def run_add(grid: Any, block: Any, a: npt.NDArray[Any], b: npt.NDArray[Any], c: npt.NDArray[Any], n: Any) -> None:
    assert grid[0] * block[0] >= n > (grid[0] - 1) * block[0]
    c[...] = a + b


def built(target: str) -> CudaExecutable:
    schedule, args = add()
    f = build(schedule, args, target=target, name="add")
    assert isinstance(f, CudaExecutable)
    return f


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_an_executable_shows_its_code(arch: str) -> None:
    f = built(f"cuda -arch={arch}")
    assert set(f.source_forms) - {"sass"} == {"loops", "cuda", "ptx"}
    assert "__launch_bounds__(64) add_kernel0(" in f.source("cuda") == f.get_source()
    assert f".target {arch}" in f.source("ptx")
    assert f.report is not None
    assert f.report["add_kernel0"].architecture == arch
    assert f.report.clean


@pytest.mark.skipif(disassembler() is None, reason="no nvdisasm: pip install nvidia-cuda-nvdisasm")
def test_an_executable_shows_its_instructions() -> None:
    f = built("cuda -arch=sm_80")
    assert "sass" in f.source_forms
    assert re.search(r"\bFADD\b", f.source("sass"))


def test_without_the_disassembler_sass_is_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("backend", "sass"):
        monkeypatch.setattr(f"tensorlang.target.cuda.{place}.disassembler", lambda: None)
    f = built("cuda -arch=sm_80")
    assert f.source_forms == ("loops", "cuda", "ptx")
    with pytest.raises(TargetError, match="pip install nvidia-cuda-nvdisasm"):
        f.source("sass")
    with pytest.raises(TargetError, match="no source 'll' for target cuda; it has loops, cuda, ptx"):
        f.source("ll")


def test_a_call_launches_what_was_built(cupy: FakeCupy) -> None:
    cupy.kernels["add_kernel0"] = run_add
    a, b, c = np.arange(100, dtype=np.float32), np.ones(100, np.float32), np.zeros(100, np.float32)
    f = built("cuda")
    f(a, b, c)
    assert np.array_equal(c, a + b)
    assert ("launch", "add_kernel0", (2, 1, 1), (64, 1, 1), 0, 0, 0) in cupy.log
    loads = [entry for entry in cupy.log if entry[0] == "load"]
    assert len(loads) == 1
    assert loads[0][1].startswith(b"\x7fELF")
    assert f.report is not None
    assert f.report["add_kernel0"].architecture == "sm_90a"


def test_code_is_compiled_again_for_another_device(two_devices: FakeCupy) -> None:
    two_devices.kernels["add_kernel0"] = run_add
    arrays = [two_devices.array(np.ones(5, np.float32), 1) for _ in range(3)]
    built("cuda")(*arrays)
    assert np.array_equal(arrays[2].memory, np.full(5, 2, np.float32))
    with pytest.raises(TargetError, match="built for sm_90a, and CUDA device 1 is an sm_80"):
        built("cuda -arch=sm_90a")(*arrays)


def test_a_packed_kernel_runs_where_it_is_unpacked(cupy: FakeCupy) -> None:
    cupy.kernels["add_kernel0"] = run_add
    schedule, args = add()
    target = parse("cuda -arch=sm_90a")
    kernel = lower(schedule, args, "add", target=target).kernel
    packed = backend("cuda").pack(kernel, target)
    f = backend("cuda").unpack(packed, target)
    a, c = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    f(a, a, c)
    assert np.array_equal(c, 2 * a)
    assert f.source_forms == ("loops",)
    with pytest.raises(ArgumentError):
        f(a, a, c[:3])


def test_a_packed_kernel_is_for_one_architecture(two_devices: FakeCupy) -> None:
    schedule, args = add()
    target = parse("cuda")
    packed = backend("cuda").pack(lower(schedule, args, target=target).kernel, target)
    arrays = [two_devices.array(np.ones(5, np.float32), 1) for _ in range(3)]
    with pytest.raises(TargetError, match="build it for target 'cuda -arch=sm_80'"):
        backend("cuda").unpack(packed, target)(*arrays)


def test_what_no_thread_runs_still_computes(cupy: FakeCupy) -> None:
    a = te.placeholder((8,), name="a")
    c = te.compute((8,), lambda i: a[i] * 2, name="c")
    with pytest.warns(OneThread, match="a single thread runs c"):
        f = build(te.create_schedule(c.op), [a, c], target="cuda", name="alone")

    def twice(grid: Any, block: Any, a: npt.NDArray[Any], c: npt.NDArray[Any]) -> None:
        assert grid == block == (1, 1, 1)
        c[...] = 2 * a

    cupy.kernels["alone_kernel0"] = twice
    given, found = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    f(given, found)
    assert np.array_equal(found, 2 * given)


def test_limits_are_those_of_the_device(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ATTRIBUTES, "MaxThreadsPerBlock", 32)
    with pytest.raises(TargetError, match=r"add_kernel0 needs 64 threads in a block .*, and cuda allows 32"):
        built("cuda")
    assert built("cuda -arch=sm_80").source_forms


def row_sums() -> Kernel:
    """Sums of 8 rows, a row a block, by as many threads as it has elements."""
    a, c = array("a", (8, 256)), array("c", (8,))
    row, column = Var("blockIdx.x", INDEX), Var("threadIdx.x", INDEX)
    x, y = Var("x", "float32"), Var("y", "float32")
    combiner = Combiner((x,), (y,), (x + y,), (const(0.0, "float32"),))
    reduce = ThreadReduce(((c, (row,)),), (load(a, row, column),), combiner, (("threadIdx.x", 256),))
    body = Seq((If(column.equal(0), store(c, row, 0.0)), Barrier(), reduce))
    kernel = DeviceKernel("rows_kernel0", (a, c), (), (index(8), index(1), index(1)), (256, 1, 1), (), body)
    return Kernel("rows", (a, c), (), ("c",), Launch(kernel, ()))


def test_scratch_of_reductions_counts_as_shared_memory() -> None:
    target = parse("cuda -arch=sm_80")
    f = backend("cuda").compile(row_sums(), target)
    assert isinstance(f, CudaExecutable)
    assert f.report is not None
    shared = f.report["rows_kernel0"].shared
    assert 0 < shared <= 1024
    less = parse(f"cuda -arch=sm_80 -max_shared_memory_per_block={shared - 1}")
    words = rf"rows_kernel0 needs {shared} bytes of shared memory .* reductions included, .* allows {shared - 1};"
    with pytest.raises(TargetError, match=words):
        backend("cuda").compile(row_sums(), less)
