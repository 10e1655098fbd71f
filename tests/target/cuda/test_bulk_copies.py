"""Bulk copies on CUDA devices: what NVRTC makes of schedules with them, what they compute, and the maps of a launch."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import te
from tensorlang.errors import ArgumentError, TargetError
from tensorlang.ir import threads
from tensorlang.ir.stmt import Kernel
from tensorlang.runtime.host_program import device_kernels
from tensorlang.target.c_source import CUDA, module_source
from tensorlang.target.cuda import tensor_maps
from tensorlang.target.cuda.report import Report
from tensorlang.target.cuda.sass import disassembler, sass
from tensorlang.target.cuda.tensor_maps import OPAQUE
from tensorlang.testing.cuda_emulation import emulate_program, unavailable
from tests.lowering import bulk_programs
from tests.target.cuda.compiled import compiled, needs_nvrtc
from tests.target.cuda.fake_cupy import FakeArray, FakeCupy
from tests.target.cuda.tensor_core_gemm import (
    Array,
    GroupProduct,
    Product,
    arrays,
    on_groups,
    scheduled,
    scheduled_groups,
)

emulated = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
HOPPER = "cuda -arch=sm_90a"
LARGE = 4096

CASES: dict[str, Product | GroupProduct] = {
    "bf16, warp groups": GroupProduct(256, 256, 320),
    "f16, warp groups, rows of b along n": GroupProduct(128, 128, 192, "f16", columns=128, turned=False, stages=3),
    "int8, one warp group": GroupProduct(64, 64, 512, "s8", groups=1, columns=64, stages=2),
    "bf16, warps": Product(64, 64, 128, turned=True, block=(64, 64), warp=(32, 32), depth=64, stages=2),
}


@cache
def kernel(p: Product | GroupProduct) -> Kernel:
    """The program with its operands copied in bulk."""
    s, args = scheduled(p) if isinstance(p, Product) else scheduled_groups(p)
    for name in ("A.shared", "B.shared"):
        s[name].bulk_copy()
    found: Kernel = tensorlang.lower(s, list(args), target=HOPPER, name="gemm").kernel
    return found


def padded(m: int, n: int, k: int) -> tuple[Any, tuple[Any, ...]]:
    """A product by warp groups of sizes that no tile divides: tiles reach outside, where the maps have zeros."""
    p = GroupProduct(m, n, k, columns=128, stages=3)
    A, B = te.placeholder((m, k), "bfloat16", name="A"), te.placeholder((n, k), "bfloat16", name="B")
    terms = -(-k // p.depth) * p.depth
    r = te.reduce_axis((0, terms), "k")

    def filled_up(x: Any, rows: int, name: str) -> Any:
        shape = (-(-rows // 128) * 128, terms)
        return te.compute(shape, lambda i, j: te.if_then_else(te.all(i < rows, j < k), x[i, j], 0), name=name)

    shared = filled_up(A, m, "AP"), filled_up(B, n, "BP")
    C = te.compute(
        (m, n),
        lambda i, j: te.sum(shared[0][i, r].astype("float32") * shared[1][j, r].astype("float32"), axis=r),
        name="C",
    )
    s = te.create_schedule(C.op)
    with s.proven_together("a product of padded tiles"):
        CW = s.cache_write(C, "warp")
        for axis in s[CW].op.axis:
            s[CW].pad(axis, 128)
        group, _ = on_groups(s[C], p.groups, p.columns)
        s[CW].compute_at(s[C], group)
        i, j = s[CW].op.axis
        step, inner = s[CW].split(s[CW].op.reduce_axis[0], p.depth)
        s[CW].reorder(step, i, j, inner)
        for x in shared:
            s[x].set_scope("shared")
            s[x].compute_at(s[CW], step)
            s[x].swizzle()
            s[x].pipeline(p.stages)
            s[x].bulk_copy()
        s[CW].tensorize(i, te.intrin("cuda.wgmma.m64n128k64.bf16.bt"))
    return s, (A, B, C)


def text(program: Kernel) -> str:
    return module_source(device_kernels(program), CUDA).text


def counted(program: Kernel) -> tuple[Counter[str], Report]:
    """How often each instruction is in the machine code, and the assembler's report."""
    made = compiled(text(program), "sm_90a")
    words = re.findall(r"\b([A-Z][A-Z0-9]+(?:\.[A-Z0-9_x]+)*)\b", sass(made.cubin))
    return Counter(word.partition(".")[0] for word in words), made.report


def single() -> Kernel:
    """A product of float32 by multiply and add, of a size that matters."""
    case = bulk_programs.product((LARGE, LARGE, LARGE), (4, 4), (64, 64, 16))
    found: Kernel = tensorlang.lower(case.s, list(case.args), target=HOPPER).kernel
    return found


@pytest.mark.sampled(1)
@needs_nvrtc
@pytest.mark.skipif(disassembler() is None, reason="no nvdisasm: pip install nvidia-cuda-nvdisasm")
@pytest.mark.parametrize("name", ["warp groups", "padded", "float32"])
def test_one_thread_copies_what_all_wait_for(name: str) -> None:
    match name:
        case "warp groups":
            program = kernel(GroupProduct(LARGE, LARGE, LARGE))
        case "padded":
            s, args = padded(1000, 1000, 1000)
            program = tensorlang.lower(s, list(args), target=HOPPER).kernel
        case _:
            program = single()
    found, report = counted(program)
    assert report.clean and not report.warnings, str(report)
    assert found["UTMALDG"] and found["SYNCS"]
    assert not {"LDGSTS", "LDL", "STL", "LDGDEPBAR"} & found.keys()
    assert (found["HGMMA"] == 4) == (name != "float32")
    if name == "warp groups":
        registers = [kernel.registers for kernel in report.kernels]
        assert max(registers) <= 168
        assert found["STS"] == found["LDS"] == 0


def test_what_nobody_writes_past_the_hardware_is_not_fenced() -> None:
    """Of bulk copies wgmma needs no proxy fence."""
    (bulk,) = device_kernels(kernel(GroupProduct(128, 256, 128)))
    assert "tl_fence_proxy_async();" not in module_source((bulk,), CUDA).text.partition("__global__")[2]


def result(program: Kernel, given: dict[str, Array], mode: Any, seed: int) -> Array:
    words = {n: x.view(np.uint16).copy() if x.dtype.itemsize == 2 else x.copy() for n, x in given.items()}
    emulate_program(program, words, mode=mode, seed=seed)
    name = list(given)[-1]
    return words[name].view(given[name].dtype)


@pytest.mark.sampled(1)
@emulated
@pytest.mark.parametrize("name", CASES)
def test_programs_compute_what_they_say(name: str) -> None:
    given, wanted = arrays(CASES[name])
    program = kernel(CASES[name])
    for mode in ("late", "at_once"):
        for seed in range(3 if name == "bf16, warp groups" else 1):
            np.testing.assert_array_equal(result(program, given, mode, seed), wanted)


@emulated
def test_tiles_reach_outside_of_the_arrays() -> None:
    s, args = padded(200, 136, 200)
    program = tensorlang.lower(s, list(args), target=HOPPER, name="gemm").kernel
    given, wanted = arrays(Product(200, 136, 200, turned=True))
    for mode in ("late", "at_once"):
        for seed in range(3):
            np.testing.assert_array_equal(result(program, given, mode, seed), wanted)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("late", [False, True])
def test_the_interpreter_finds_no_race(late: bool) -> None:
    p = GroupProduct(64, 64, 128, groups=1, columns=64, stages=3)
    for program in (p, replace(p, ahead=1)):
        given, wanted = arrays(program)
        threads.run(kernel(program), given, late=late)
        np.testing.assert_array_equal(given["C"], wanted)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the driver was asked for maps: address, extents, strides, box and swizzle."""
    found: list[tuple[Any, ...]] = []

    def encode(place: Any, kind: int, rank: int, address: Any, *rest: Any) -> int:
        extents, strides, box = (list(values) for values in rest[:3])
        found.append((kind, address.value, extents, strides, box, rest[5]))
        return 0

    monkeypatch.setattr(tensor_maps, "driver", lambda: SimpleNamespace(cuTensorMapEncodeTiled=encode))
    tensor_maps.encoded.cache_clear()
    return found


def executable() -> Any:
    s, args = scheduled_groups(GroupProduct(128, 256, 128))
    for name in ("A.shared", "B.shared"):
        s[name].bulk_copy()
    return tensorlang.build(s, list(args), target=HOPPER, name="gemm")


def on_device(cupy: FakeCupy) -> list[FakeArray]:
    """Arguments of that program."""
    bits = (np.zeros((128, 128), np.uint16), np.zeros((256, 128), np.uint16), np.zeros((128, 256), np.float32))
    return [cupy.array(array) for array in bits]


@needs_nvrtc
def test_a_launch_gives_maps_behind_the_scalars(cupy: FakeCupy, asked: list[tuple[Any, ...]]) -> None:
    given: list[tuple[Any, ...]] = []
    cupy.kernels["gemm_kernel0"] = lambda grid, block, *arguments: given.append(arguments)
    f = executable()
    there = on_device(cupy)
    f(*there)
    f(*there)
    a, b = (array.data.ptr for array in there[:2])
    assert asked == [(9, a, [128, 128], [256], [64, 128], 3), (9, b, [128, 256], [256], [64, 256], 3)]
    assert [[getattr(x, "dtype", None) for x in arguments[3:]] for arguments in given] == [[OPAQUE, OPAQUE]] * 2
    f(on_device(cupy)[0], *there[1:])
    assert len(asked) == 3  # what moved is mapped anew


@needs_nvrtc
def test_a_graph_keeps_the_maps_of_its_arrays(cupy: FakeCupy, asked: list[tuple[Any, ...]]) -> None:
    calls: list[Any] = []
    cupy.kernels["gemm_kernel0"] = lambda grid, block, *arguments: calls.append(arguments[3:])
    graph = executable().graph(*on_device(cupy))
    graph.launch()
    graph.launch()
    assert len(asked) == 2
    assert [len(maps) for maps in calls] == [2, 2]


@needs_nvrtc
def test_what_cannot_be_mapped_is_an_error_of_the_call(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    f = executable()
    there = on_device(cupy)
    askew = cupy.array(np.zeros((128, 128), np.uint16), offset=8)
    with pytest.raises(ArgumentError, match="A to begin at a multiple of 16 bytes"):
        f(askew, *there[1:])
    monkeypatch.setattr(tensor_maps, "driver", SimpleNamespace)
    tensor_maps.encoded.cache_clear()
    with pytest.raises(TargetError, match=r"this CUDA driver has no tensor maps .*; update it to one of CUDA 12"):
        f(*there)


@needs_nvrtc
def test_calls_and_graphs_copy_by_their_maps(any_cuda: Any) -> None:
    given, wanted = arrays(GroupProduct(128, 256, 128))
    f = executable()
    f(*given.values())
    np.testing.assert_array_equal(given["C"], wanted)
    words = [np.ascontiguousarray(x).view(np.uint16) for x in (given["A"], given["B"])]
    there = [any_cuda.asarray(array) for array in (*words, np.zeros_like(wanted))]
    f.graph(*there).launch()
    np.testing.assert_array_equal(there[2].get(), wanted)


def test_nothing_is_mapped_of_an_array_without_elements(asked: list[tuple[Any, ...]]) -> None:
    boxes = module_source(device_kernels(kernel(GroupProduct(64, 64, 128, groups=1, columns=64, stages=2))), CUDA)
    (first, _) = boxes.kernels[0].maps
    empty = tensor_maps.map_of(SimpleNamespace(shape=(0, 64)), first)
    assert empty.dtype == OPAQUE
    assert asked == []
