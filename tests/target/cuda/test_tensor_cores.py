"""Schedules for tensor cores: what the compiler makes of them, and what they compute, in any order of threads."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import cache

import ml_dtypes
import numpy as np
import pytest

import tensorlang
from tensorlang import dtypes, te
from tensorlang.errors import BadArgument, InternalError, TargetError
from tensorlang.ir import threads
from tensorlang.ir.stmt import Allocate, Barrier, CallMachine, Kernel, Seq, walk
from tensorlang.ir.warp_arrays import WARP
from tensorlang.runtime.host_program import device_kernels
from tensorlang.target.c_source import CUDA, module_source
from tensorlang.target.cuda.sass import disassembler, sass
from tensorlang.testing.cuda_emulation import emulate_program, unavailable
from tests.target.cuda import tensor_core_chain
from tests.target.cuda.compiled import compiled, needs_nvrtc
from tests.target.cuda.tensor_core_gemm import Array, GroupProduct, Product, arrays, changed, kernel, scheduled

emulated = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

LARGE = 4096
CASES: dict[str, Product | GroupProduct] = {
    "bf16": Product(128, 256, 160),
    "f16": Product(128, 128, 96, "f16"),
    "bf16, b turned": Product(128, 128, 128, turned=True, depth=64, stages=3),
    "int8": Product(128, 128, 256, "s8", turned=True, depth=64),
    "uint8": Product(128, 128, 192, "u8", turned=True, depth=64),
    "tf32": Product(128, 128, 64, "tf32", turned=True, depth=16),
    "tf32 cut off": Product(128, 128, 64, "tf32", turned=True, depth=16, loads=".cut"),
    "bf16, GELU": Product(128, 128, 96, epilogue=True),
    "f16, GELU": Product(128, 128, 96, "f16", epilogue=True),
    "bf16, warp groups": GroupProduct(256, 256, 256),
    "f16, warp groups, ReLU": GroupProduct(128, 128, 192, "f16", columns=128, relu=True, stages=3),
    "int8, one warp group": GroupProduct(64, 64, 512, "s8", groups=1, columns=64, stages=2),
    "e5m2, scaled": Product(128, 128, 192, "e5m2", turned=True, depth=64, scaled=True),
    "e4m3, GELU": Product(64, 64, 64, "e4m3", True, (64, 64), (32, 16), epilogue=True, stages=2),
    "e4m3, warp groups": GroupProduct(128, 128, 384, "e4m3", columns=128, stages=3),
    "f16, sums of f16": Product(64, 64, 96, "f16.f16", block=(64, 64), warp=(32, 32), stages=3),
    "one stage": Product(64, 64, 64, block=(64, 64), warp=(32, 16), stages=1),
    "one warp": Product(32, 32, 64, block=(32, 32), warp=(32, 32), stages=2, swizzled=False),
}
INSTRUCTION = {
    "bf16": "HMMA.16816.F32.BF16", "f16": "HMMA.16816.F32", "tf32": "HMMA.1688.F32.TF32", "s8": "IMMA.16832.S8.S8",
    "u8": "IMMA.16832.U8.U8", "e5m2": "QMMA.16832.F32.E5M2.E5M2",
}  # fmt: skip
CASE = pytest.mark.parametrize("name", CASES)


def text(program: Kernel) -> str:
    return module_source(device_kernels(program), CUDA).text


@cache
def large(p: Product | GroupProduct) -> Kernel:
    """The program on matrices of thousands of rows, for the code that matters."""
    return kernel(replace(p, m=LARGE, n=LARGE, k=LARGE))


@pytest.mark.sampled(2)
@needs_nvrtc
@pytest.mark.parametrize(
    ("name", "arch"),
    [
        ("bf16", "sm_80"), ("bf16", "sm_90a"), ("int8", "sm_80"), ("tf32", "sm_80"), ("bf16, GELU", "sm_90a"),
        ("bf16, warp groups", "sm_90a"), ("f16, warp groups, ReLU", "sm_90a"), ("e5m2, scaled", "sm_89"),
        ("e4m3, warp groups", "sm_90a"),
    ],
)  # fmt: skip
def test_the_tile_stays_in_registers(name: str, arch: str) -> None:
    made = compiled(text(large(CASES[name])), arch)
    assert made.report.clean and not made.report.warnings, str(made.report)
    assert made.report["gemm_kernel0"].stack == 0
    assert 0 < made.report["gemm_kernel0"].registers <= (168 if "groups" in name else 128)


@pytest.mark.sampled(1)
@needs_nvrtc
@pytest.mark.skipif(disassembler() is None, reason="no nvdisasm: pip install nvidia-cuda-nvdisasm")
@pytest.mark.parametrize("name", ["bf16", "int8", "tf32", "bf16, GELU", "e5m2, scaled"])
def test_the_inner_loop_is_that_of_the_kernel_by_hand(name: str) -> None:
    """tests/target/cuda/kernels/gemm_bf16_mma.cu: 8 loads of the left operand, 4 of the right, 32 products a step."""
    p = CASES[name]
    assert isinstance(p, Product)
    code = sass(compiled(text(large(p)), "sm_89" if p.element == "e5m2" else "sm_80").cubin)
    found = Counter(re.findall(r"\b([A-Z][A-Z0-9]+(?:\.[A-Z0-9_x]+)*)\b", code))
    assert found[INSTRUCTION[p.element]] == 32
    right = {"LDSM.16.M88.4": 12} if p.turned else {"LDSM.16.M88.4": 8, "LDSM.16.MT88.4": 4}
    assert {n: count for n, count in found.items() if n.startswith("LDSM")} == right
    assert found["LDGSTS.E.BYPASS.128"] >= 8
    assert not [n for n in found if n.startswith(("LDL", "STL", "LDS.", "STS"))]
    wide = "STG.E" if p.epilogue or p.scaled else "STG.E.64"
    assert found[wide] == 32  # pairs of elements


@needs_nvrtc
@pytest.mark.skipif(disassembler() is None, reason="no nvdisasm: pip install nvidia-cuda-nvdisasm")
@pytest.mark.parametrize(
    ("name", "instruction"),
    [("bf16, warp groups", "HGMMA.64x256x16.F32.BF16"), ("e4m3, warp groups", "QGMMA.64x128x32.F32.E4M3.E4M3")],
)
def test_warp_groups_multiply_from_shared_memory(name: str, instruction: str) -> None:
    code = sass(compiled(text(large(CASES[name])), "sm_90a").cubin)
    found = Counter(re.findall(r"\b([A-Z][A-Z0-9]+(?:\.[A-Z0-9_x]+)*)\b", code))
    assert found[instruction] == 4
    assert found["FENCE.VIEW.ASYNC.S"] == found["BAR.SYNC.DEFER_BLOCKING"]
    assert not [n for n in found if n.startswith(("LDL", "STL", "LDSM", "STS", "HMMA"))]


def result(program: Kernel, given: dict[str, Array], mode: str, seed: int) -> Array:
    """The output of a program, emulated."""
    held = {n: dtypes.info(x.dtype.name) for n, x in given.items()}
    words = {n: x.view(held[n].bits_dtype if held[n].is_narrow_float else x.dtype).copy() for n, x in given.items()}
    emulate_program(program, words, mode="late" if mode == "late" else "at_once", seed=seed)
    name = list(given)[-1]
    return words[name].view(given[name].dtype)


def check(p: Product | GroupProduct, got: Array, wanted: Array) -> None:
    """Whole numbers are exact; what GELU makes of them is rounded once to the output."""
    if isinstance(p, GroupProduct) or not p.epilogue:
        np.testing.assert_array_equal(got, wanted)
        return
    least = ml_dtypes.finfo(got.dtype)
    half = float(least.eps) / 2
    atol = max(2e-5, float(least.smallest_subnormal))
    np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=1.01 * half, atol=atol)


@pytest.mark.sampled(2)
@emulated
@CASE
def test_programs_compute_what_they_say(name: str) -> None:
    p = CASES[name]
    given, wanted = arrays(p)
    program = kernel(p)
    for mode in ("late", "at_once"):
        for seed in range(3 if name in ("bf16", "bf16, warp groups") else 1):
            check(p, result(program, given, mode, seed), wanted)


SMALL = Product(32, 32, 96, block=(32, 32), warp=(16, 16), stages=3)
"""For the interpreter."""


def test_every_step_is_legal() -> None:
    each, _ = scheduled(SMALL, stepwise=True)
    assert each.trace.steps == scheduled(SMALL)[0].trace.steps


@pytest.mark.parametrize("late", [False, True])
def test_the_interpreter_finds_no_race(late: bool) -> None:
    programs: list[Product | GroupProduct] = [SMALL, replace(SMALL, n=32, turned=True, epilogue=True, stages=2)]
    programs.append(GroupProduct(64, 64, 128, groups=1, columns=64, stages=2))
    programs.append(Product(16, 16, 64, "e4m3", True, (16, 16), (16, 16), stages=2))
    for p in programs:
        given, wanted = arrays(p)
        threads.run(kernel(p), given, late=late)
        check(p, given[list(given)[-1]], wanted)


def test_the_interpreter_finds_a_missing_barrier() -> None:
    given, _ = arrays(SMALL)
    with pytest.raises(InternalError, match=r"thread .* (reads|writes)"):
        threads.run(changed(kernel(SMALL), {Barrier: Seq(())}), given)


def test_what_one_thread_of_a_warp_copies_the_others_wait_for() -> None:
    """ldmatrix reads for all lanes: a tile that the first of them alone has copied is theirs after a barrier only."""
    p = Product(16, 16, 32, block=(16, 16), warp=(16, 16), depth=16, stages=1, copying=1)
    given, wanted = arrays(p)
    program = kernel(p)
    threads.run(program, given)
    np.testing.assert_array_equal(given["C"], wanted)
    with pytest.raises(InternalError, match="with no barrier between"):
        threads.run(changed(program, {Barrier: Seq(())}), given)


def test_sums_are_the_operand_of_the_next_product_in_registers() -> None:
    program = tensor_core_chain.chained()
    given, wanted = tensor_core_chain.arrays()
    threads.run(program, given)
    np.testing.assert_array_equal(given["O"], wanted)
    (found,) = device_kernels(program)
    assert {b.name for b in found.shared} == {"A.shared", "B.shared", "V.shared"}
    assert sum(isinstance(stmt, Barrier) for stmt in walk(found.body)) == 1


@emulated
@needs_nvrtc
def test_the_chain_is_emulated_and_needs_no_stack() -> None:
    program = tensor_core_chain.chained()
    given, wanted = tensor_core_chain.arrays()
    np.testing.assert_array_equal(result(program, given, "late", 0), wanted)
    report = compiled(text(program), "sm_80").report
    assert report.clean and report["chain_kernel0"].stack == 0


def test_a_warp_holds_the_arrays_that_its_code_works_on() -> None:
    (found,) = device_kernels(kernel(SMALL))
    allocated = {s.buffer.name: s.buffer for s in walk(found.body) if isinstance(s, Allocate)}
    assert {name: b.scope for name, b in allocated.items()} == dict.fromkeys(
        ["C.warp", "A.shared.warp", "B.shared.warp"], WARP
    )
    assert all(s.code.lanes == 32 for s in walk(found.body) if isinstance(s, CallMachine))
    assert found.block == (32, 2, 2)


@pytest.mark.parametrize(
    ("p", "message"),
    [
        (replace(SMALL, m=65), "bfloat16\\[65, 96\\] is in registers, .*: whole fragments of 16 x 16 are wanted"),
        (replace(SMALL, k=100), "bfloat16\\[32, 100\\] is in registers, .*: whole fragments of 16 x 16 are wanted"),
        (
            replace(SMALL, n=40),
            r"some tiles of B\.shared\.warp are cut \(.*\), and the lanes of cuda\.ldmatrix\.b\.bf16",
        ),
        (replace(SMALL, warp=(16, 12), block=(32, 24), n=48), "begins at .*: whole fragments of 16 x 8 are wanted"),
    ],
)
def test_tiles_that_are_not_whole_are_refused(p: Product, message: str) -> None:
    with pytest.raises(BadArgument, match=message):
        s, args = scheduled(p, stepwise=True)
        tensorlang.lower(s, list(args), target="cuda -arch=sm_80")


def test_blocks_and_warps_need_not_divide() -> None:
    for p in (replace(SMALL, m=48, n=48, k=48), replace(SMALL, m=16, n=80, k=80, stages=1)):
        given, wanted = arrays(p)
        threads.run(kernel(p), given, late=True)
        np.testing.assert_array_equal(given["C"], wanted)


def test_other_targets_do_not_have_the_instruction() -> None:
    s, args = scheduled(SMALL)
    with pytest.raises(TargetError, match=r"cuda\.\S+ is of cuda, and the target is opencl"):
        tensorlang.build(s, list(args), target="opencl")
    with pytest.raises(TargetError, match=r"cuda\.\S+ needs sm_80, or a later one, and the target is sm_75"):
        tensorlang.build(s, list(args), target="cuda -arch=sm_75")


def test_lanes_are_numbered_as_the_fragment_says() -> None:
    with pytest.raises(TargetError, match=r"a thread uses C\.warp\[.*\], which lane .* of its warp holds, not itself"):
        kernel(replace(SMALL, lanes="wrong"))


def test_tiles_of_every_second_row_are_no_fragments() -> None:
    """Rows 0, 2, 4 lie in lanes and registers of several fragments: the instruction would load rows 0, 1, 2."""
    A = te.placeholder((64, 32), "bfloat16", name="A")
    C = te.compute((64, 32), lambda i, j: A[i, j], name="C")
    s = te.create_schedule(C.op)
    stage = s[s.cache_read(s.cache_read(A, "shared", [C]), "warp", [C])]
    i, j = stage.op.axis
    i, second = stage.split(i, 2)
    io, ii = stage.split(i, 16)
    jo, jj = stage.split(j, 16)
    stage.reorder(io, second, jo, ii, jj)
    with pytest.raises(BadArgument, match=r"takes only one of 2 elements .* A\.shared\.warp: .* of neighbours"):
        stage.tensorize(ii, te.intrin("cuda.ldmatrix.a.bf16"))
