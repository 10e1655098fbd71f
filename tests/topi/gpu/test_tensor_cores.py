"""Products of the library on tensor cores: every layout, dtype and odd size, the tiles, and the machine code."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any, Literal

import numpy as np
import pytest

import tensorlang
from tensorlang import config, te, topi
from tensorlang.driver import Lowered
from tensorlang.errors import DefinitionError
from tensorlang.schedule import Schedule
from tensorlang.schedules.anchor import Anchor
from tensorlang.schedules.gpu.tensor_cores import WarpTile, fragment_tile, schedule_fragments
from tensorlang.target import GpuLimits, parse
from tensorlang.target.cuda.sass import disassembler
from tensorlang.te.operation import Tensor
from tensorlang.te.tolerance import tolerance
from tensorlang.testing import check_schedule
from tensorlang.testing.cuda_emulation import emulate_program, unavailable
from tests.target.cuda.compiled import needs_nvrtc
from tests.topi.gpu.device_runs import numbers
from tests.topi.programs import Array, shape_of

SUMS = {"int8": "int32", "uint8": "int32"}
"""Elements whose sums are no float32."""


def product(
    m: Any, n: int, k: int, dtype: str = "float16", turned: bool = False, batches: int = 0, transposed: bool = False
) -> list[Tensor]:
    """Two matrices, or two batches, and their product; `turned`: the second one is given as [n, k].

    `transposed`: the first one is given as [k, m]. Of float32 it may be made in tf32.
    """
    shapes = [(k, m) if transposed else (m, k), (n, k) if turned else (k, n)]
    a, b = (te.placeholder((batches, *x) if batches else x, dtype, name) for name, x in zip("AB", shapes, strict=True))
    operator = topi.batch_matmul if batches else topi.matmul
    precision = "tf32" if dtype == "float32" else None
    sums = SUMS.get(dtype, "float32")
    return [a, b, operator(a, b, transpose_a=transposed, transpose_b=turned, out_dtype=sums, precision=precision)]


def layer(m: Any, n: int, k: int, dtype: str = "bfloat16") -> list[Tensor]:
    """A dense layer with GELU and a residual, rounded once to the dtype of its inputs."""
    x, w = te.placeholder((m, k), dtype, "x"), te.placeholder((n, k), dtype, "w")
    bias, residual = te.placeholder((n,), dtype, "bias"), te.placeholder((m, n), dtype, "residual")
    grown = topi.gelu(topi.dense(x, w, bias, out_dtype="float32"))
    out = te.compute((m, n), lambda i, j: (grown[i, j] + residual[i, j].astype("float32")).astype(dtype), name="out")
    return [x, w, bias, residual, out]


def scheduled(args: list[Tensor], tile: WarpTile | None = None, arch: str = "sm_80") -> Schedule:
    """The library's schedule; by a tile of our own, if there is one."""
    target = parse(f"cuda -arch={arch}")
    if tile is None:
        return topi.schedule(args[-1], target, tuned=False)
    s: Schedule = te.create_schedule(args[-1].op)
    computed = [stage for stage in s.stages if isinstance(stage.op, te.ComputeOp)]
    (main,) = (stage.name for stage in computed if stage.op.reduce_axis)
    with s.proven_together("a tile of our own"):
        for stage in computed:
            if stage.name not in (main, args[-1].op.name):
                stage.compute_inline()
        schedule_fragments(s, Anchor(main, args[-1].op.name, target), tile)
    return s


def chosen(args: list[Tensor], target: str = "cuda -arch=sm_80") -> WarpTile | None:
    """The tile that the rule takes."""
    s, name = te.create_schedule(args[-1].op), args[-1].op.name
    return fragment_tile(s, Anchor(name, name, parse(target)))


DEEP = WarpTile((32, 32), (2, 2), depth=16, stages=3)
SMALL = WarpTile((16, 16), (2, 2), depth=16, stages=3)
GROUPS = WarpTile((64, 64), (2, 1), lanes=128, depth=64, stages=2)
CASES: dict[str, tuple[list[Tensor], WarpTile | None]] = {
    "float16": (product(128, 128, 64), None),
    "bfloat16, odd rows": (product(37, 40, 48, "bfloat16"), None),
    "odd rows and columns": (product(50, 37, 32, turned=True), None),
    "int8": (product(40, 33, 64, "int8", turned=True), None),
    "uint8": (product(17, 24, 64, "uint8", turned=True), None),
    "float8": (product(40, 33, 64, "float8_e4m3fn", turned=True), None),
    "batches": (product(24, 40, 32, batches=2), None),
    "batches, odd rows": (product(19, 24, 32, turned=True, batches=3), None),
    "layer": (layer(50, 38, 64), None),
    "several warps": (product(70, 72, 80), DEEP),
    "parts": (product(33, 17, 96, turned=True), replace(SMALL, parts=3)),
    "rows of blocks together": (product(64, 40, 16), replace(SMALL, together=2)),
    "tf32": (product(40, 36, 64, "float32"), None),
    "tf32, both turned around": (product(24, 33, 32, "float32", transposed=True, batches=2), None),
    "A across": (product(40, 24, 32, transposed=True), None),
    "warp groups, both across": (product(72, 64, 128, transposed=True), replace(GROUPS, warps=(1, 1), stages=2)),
    "warp groups, three stages": (product(64, 50, 256, turned=True), replace(GROUPS, warps=(1, 1), stages=3)),
    "warp groups": (product(130, 50, 192, turned=True), GROUPS),
    "layer, warp groups": (layer(64, 64, 128), GROUPS),
}
CASE = pytest.mark.parametrize("name", CASES)
ROOMY = replace(parse("interpreter"), gpu=GpuLimits(shared_bytes=64 * 1024))
"""An interpreter with room for factors of 48 KB and the barriers of their copies."""


def architecture(name: str) -> str:
    args, tile = CASES[name]
    newer = "sm_89" if args[0].dtype.startswith("float8") else "sm_80"
    return "sm_90a" if tile is not None and tile.lanes > 32 else newer


@cache
def case(name: str) -> Schedule:
    """The schedule of a case, once for all tests."""
    return scheduled(*CASES[name], architecture(name))


@cache
def lowered(name: str) -> Lowered:
    """The program of a case."""
    found: Lowered = tensorlang.lower(case(name), CASES[name][0], target=f"cuda -arch={architecture(name)}")
    return found


@pytest.mark.sampled(2)
@CASE
def test_the_interpreter_finds_the_values_and_no_race(name: str) -> None:
    check_schedule(case(name), CASES[name][0], targets=(ROOMY,))


def test_a_symbolic_number_of_rows() -> None:
    args = product(te.var("m"), 24, 32, turned=True)
    assert chosen(args) is not None
    s = scheduled(args)
    for m in (1, 70):
        check_schedule(s, args, {"m": m}, targets=("interpreter",))


@pytest.mark.sampled(2)
@pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
@pytest.mark.parametrize("mode", ["late", "at_once"])
@pytest.mark.parametrize(
    "name",
    [
        *("float16", "int8", "batches, odd rows", "several warps", "warp groups", "parts", "rows of blocks together"),
        *(
            "tf32",
            "float8",
            "A across",
            "warp groups, both across",
            "warp groups, three stages",
        ),
    ],
)
def test_the_text_computes_the_product(name: str, mode: Literal["late", "at_once"]) -> None:
    args, program = CASES[name][0], lowered(name).kernel
    a, b, made = (numbers(tensor) for tensor in args)
    words = (x.view(f"u{x.itemsize}") if x.itemsize < 4 else x for x in (a, b, made))
    emulate_program(program, dict(zip((p.name for p in program.params), words, strict=True)), mode=mode, seed=3)
    left = a.swapaxes(-1, -2) if "across" in name else a
    right = b.swapaxes(-1, -2) if b.shape[-1] == left.shape[-1] else b
    np.testing.assert_array_equal(made, left.astype(made.dtype) @ right.astype(made.dtype))


@pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
def test_tf32_rounds_factors_and_nothing_else() -> None:
    args = product(20, 24, 64, "float32")
    program = tensorlang.lower(scheduled(args), args, target="cuda -arch=sm_80").kernel
    rng = np.random.default_rng(3)
    a, b = (rng.uniform(-1, 1, shape_of(x)).astype(np.float32) for x in args[:2])
    made = np.zeros((20, 24), np.float32)
    emulate_program(program, dict(zip((p.name for p in program.params), (a, b, made), strict=True)))
    exact = a.astype(np.float64) @ b
    rtol, atol = tolerance(te.create_schedule(args[-1].op).program)
    np.testing.assert_allclose(made, exact, rtol, atol)
    np.testing.assert_allclose(made, tf32(a) @ tf32(b), rtol=1e-5, atol=1e-5)
    assert abs(made - exact).max() > 1e-4  # float32 would be below 1e-5


def tf32(x: Array) -> Array:
    """Numbers rounded to 10 bits behind the leading one, ties away from zero."""
    bits = x.view(np.uint32).astype(np.uint64) + 0x1000
    return (bits & 0xFFFFE000).astype(np.uint32).view(np.float32).astype(np.float64)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_floats_of_8_bits_are_multiplied_from_sm_89(dtype: str) -> None:
    args = product(4096, 4096, 4096, dtype, turned=True)
    assert chosen(args) is None and chosen(product(4096, 4096, 4096, dtype), "cuda -arch=sm_89") is None
    by_warps, in_groups = (chosen(args, f"cuda -arch={arch}") for arch in ("sm_89", "sm_90a"))
    assert by_warps is not None and by_warps.lanes == 32
    assert in_groups is not None and in_groups.lanes == 128


def test_tf32_has_to_be_asked_for() -> None:
    a, b = (te.placeholder((64, 64), "float32", name) for name in "AB")
    assert chosen([a, b, topi.matmul(a, b)]) is None
    asked = topi.matmul(a, b, precision="tf32")
    assert chosen([a, b, asked]) is not None
    assert chosen([a, b, asked], "cuda -arch=sm_75") is None
    keys = [te.create_schedule(x.op).program.key for x in (topi.matmul(a, b), asked)]
    assert keys[0] != keys[1]  # so that no record of the one is taken for the other


@pytest.mark.parametrize(("dtype", "precision"), [("float32", "tf16"), ("float64", "tf32")])
def test_other_precisions_are_refused(dtype: str, precision: str) -> None:
    a, b = (te.placeholder((8, 8), dtype, name) for name in "AB")
    with pytest.raises(DefinitionError, match=rf"precision='{precision}' for {dtype}: there is 'tf32'"):
        topi.matmul(a, b, precision=precision)


OTHERWISE: dict[str, tuple[list[Tensor], str]] = {
    "terms that fill no instruction": (product(64, 64, 40), "cuda -arch=sm_80"),
    "odd columns side by side": (product(64, 37, 64), "cuda -arch=sm_80"),
    "bytes in rows": (product(64, 64, 64, "int8"), "cuda -arch=sm_80"),
    "bytes across": (product(64, 64, 64, "int8", turned=True, transposed=True), "cuda -arch=sm_80"),
    "odd rows side by side": (product(35, 64, 64, transposed=True), "cuda -arch=sm_80"),
    "an older GPU": (product(64, 64, 64), "cuda -arch=sm_75"),
    "OpenCL": (product(64, 64, 64), "opencl"),
    "too few threads": (product(64, 64, 64), "cuda -arch=sm_80 -max_num_threads=32"),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_other_products_are_made_by_threads(name: str) -> None:
    args, target = OTHERWISE[name]
    assert chosen(args, target) is None
    s = topi.schedule(args[-1], target, tuned=False)
    assert "cuda.mma" not in str(s.trace)


def test_a_product_by_threads_has_the_same_values() -> None:
    args = product(33, 21, 40)
    check_schedule(scheduled(args), args, targets=("interpreter",))


def test_sums_in_16_bits_are_made_by_threads() -> None:
    a, b = te.placeholder((64, 64), "float16", "A"), te.placeholder((64, 48), "float16", "B")
    k = te.reduce_axis((0, 64), "k")
    assert chosen([a, b, te.compute((64, 48), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k))]) is None
    assert chosen([a, b, topi.matmul(a, b, out_dtype="float32")]) is not None


def test_results_of_16_bits_are_rounded_behind_sums_of_32() -> None:
    a, b = te.placeholder((64, 64), "float16", "A"), te.placeholder((64, 48), "float16", "B")
    steps = scheduled([a, b, topi.matmul(a, b)]).trace.to_python()
    assert "s['C_sum'].tensorize('i_i', te.intrin('cuda.mma.m16n8k16.f16'))" in steps


def test_what_is_no_sum_is_made_by_threads() -> None:
    a, b = te.placeholder((32, 32), "float16", "A"), te.placeholder((32, 32), "float16", "B")
    k = te.reduce_axis((0, 32), "k")
    wide = "float32"
    best = te.compute((32, 32), lambda i, j: te.max(a[i, k].astype(wide) * b[k, j].astype(wide), axis=k), tag="matmul")
    assert chosen([a, b, best]) is None


def test_tiles_suit_the_shape_and_the_target() -> None:
    large = product(4096, 4096, 4096, "bfloat16", turned=True)
    assert chosen(large) == WarpTile((64, 32), (2, 4), depth=32, stages=4, together=8)
    groups = chosen(large, "cuda -arch=sm_90a")
    assert groups == WarpTile((64, 256), (2, 1), lanes=128, depth=64, stages=4, together=16)
    assert chosen(product(4096, 4096, 4096, "bfloat16", transposed=True), "cuda -arch=sm_90a") == groups
    small = chosen(product(512, 512, 512))
    assert small is not None and small.block[0] * small.block[1] < 128 * 128
    little = chosen(large, "cuda -arch=sm_90a -max_shared_memory_per_block=49152")
    assert little is not None and sum(little.block) * little.depth * 2 * little.stages <= 49152


MACHINE: dict[str, tuple[list[Tensor], str, str]] = {
    "float16": (product(4096, 4096, 4096), "sm_80", "HMMA.16816.F32"),
    "bfloat16 on Hopper": (product(4096, 4096, 4096, "bfloat16"), "sm_90a", "HGMMA.64x256x16.F32.BF16"),
    "layer": (layer(4096, 4096, 4096), "sm_80", "HMMA.16816.F32.BF16"),
    "odd layer": (layer(1000, 1001, 512), "sm_80", "HMMA.16816.F32.BF16"),
    "layer in warp groups": (layer(4096, 4096, 4096), "sm_90a", "HGMMA.64x256x16.F32.BF16"),
    "batches": (product(384, 64, 384, batches=96), "sm_80", "HMMA.16816.F32"),
    "any number of rows": (product(te.var("m"), 4096, 1024, turned=True), "sm_80", "HMMA.16816.F32"),
    "int8": (product(4096, 4096, 4096, "int8", turned=True), "sm_90a", "IGMMA.64x256x32.S8.S8"),
    "float8": (product(4096, 4096, 4096, "float8_e4m3fn", turned=True), "sm_90a", "QGMMA.64x256x32.F32.E4M3"),
    "parts": (product(256, 256, 8192, "bfloat16"), "sm_80", "HMMA.16816.F32.BF16"),
    "tf32": (product(4096, 4096, 4096, "float32", turned=True), "sm_80", "HMMA.1688.F32.TF32"),
    "tf32, turned around": (product(4096, 4096, 4096, "float32"), "sm_90a", "HMMA.1688.F32.TF32"),
    "A across in warp groups": (product(4096, 4096, 4096, transposed=True), "sm_90a", "HGMMA.64x256x16.F32"),
    "A across": (product(4096, 4096, 4096, transposed=True), "sm_80", "HMMA.16816.F32"),
    "batches in warp groups": (product(384, 256, 384, turned=True, batches=96), "sm_90a", "HGMMA.64x"),
}


@pytest.mark.sampled(2)
@needs_nvrtc
@pytest.mark.parametrize("name", MACHINE)
def test_the_machine_code(name: str) -> None:
    args, arch, instruction = MACHINE[name]
    with config.override(check=False):
        kernel: Any = tensorlang.build(scheduled(args, arch=arch), args, target=f"cuda -arch={arch}")
    assert kernel.report.clean, kernel.report
    assert all(k.stack == 0 for k in kernel.report.kernels), kernel.report
    if disassembler() is None:
        pytest.skip("no nvdisasm: pip install nvidia-cuda-nvdisasm")
    found = Counter(re.findall(r"\b([A-Z][A-Z0-9]+(?:\.[A-Z0-9_x]+)*)\b", kernel.source("sass")))
    assert sum(count for word, count in found.items() if word.startswith(instruction)) >= 4
    if "GMMA" in instruction:
        assert sum(count for word, count in found.items() if word.startswith("UTMALDG")) >= 2
    else:
        assert found["LDGSTS.E.BYPASS.128"] >= 8
    assert not [word for word in found if word.startswith(("LDL", "STL"))]
    if "GMMA" not in instruction:
        assert [word for word in found if word.startswith("LDSM")]


@pytest.mark.parametrize(("target", "step"), [("cuda", "cuda.mma"), ("llvm -mcpu=sapphirerapids", "narrow_product")])
def test_products_are_the_same_program_and_scheduled_for_the_target_in_use(target: str, step: str) -> None:
    a, b = (te.placeholder((64, 64), "bfloat16", name) for name in "AB")
    with parse(target):
        s = topi.schedule(topi.matmul(a, b, out_dtype="float32"), tuned=False)
    assert step in str(s) and [op.name for op in s.original.ops] == ["A", "B", "C"]
