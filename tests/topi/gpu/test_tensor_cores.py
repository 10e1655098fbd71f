"""Products of the library on tensor cores: every layout, dtype and odd size, the tiles, and the machine code."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Literal

import numpy as np
import pytest

import tensorlang
from tensorlang import config, dtypes, te, topi
from tensorlang.schedule import Schedule
from tensorlang.target import parse
from tensorlang.target.cuda.sass import disassembler
from tensorlang.te.operation import Tensor
from tensorlang.testing import check_schedule
from tensorlang.testing.cuda_emulation import emulate_program, unavailable
from tensorlang.topi.gpu.tensor_cores import WarpTile, fragment_tile, schedule_fragments
from tensorlang.topi.operator import Anchor
from tests.target.cuda.compiled import needs_nvrtc
from tests.topi.programs import Array, shape_of

SUMS = {"float16": "float32", "bfloat16": "float32", "int8": "int32", "uint8": "int32"}


def product(m: Any, n: int, k: int, dtype: str = "float16", turned: bool = False, batches: int = 0) -> list[Tensor]:
    """Two matrices, or two batches, and their product; `turned`: the second one is given as [n, k]."""
    shapes = [(m, k), (n, k) if turned else (k, n)]
    a, b = (te.placeholder((batches, *x) if batches else x, dtype, name) for name, x in zip("AB", shapes, strict=True))
    with parse("cuda"):
        if batches:
            return [a, b, topi.batch_matmul(a, b, out_dtype=SUMS[dtype], transpose_b=turned)]
        return [a, b, topi.matmul(a, b, transpose_b=turned, out_dtype=SUMS[dtype])]


def layer(m: Any, n: int, k: int, dtype: str = "bfloat16") -> list[Tensor]:
    """A dense layer with GELU and a residual, rounded once to the dtype of its inputs."""
    x, w = te.placeholder((m, k), dtype, "x"), te.placeholder((n, k), dtype, "w")
    bias, residual = te.placeholder((n,), dtype, "bias"), te.placeholder((m, n), dtype, "residual")
    with parse("cuda"):
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
    for stage in computed:
        if stage.name not in (main, args[-1].op.name):
            stage.compute_inline()
    schedule_fragments(s, Anchor(main, args[-1].op.name, target), tile)
    return s


def chosen(args: list[Tensor], target: str = "cuda -arch=sm_80") -> WarpTile | None:
    """The tile that the rule takes."""
    s, name = te.create_schedule(args[-1].op), args[-1].op.name
    return fragment_tile(s, Anchor(name, name, parse(target)))


DEEP = WarpTile((64, 64), (32, 32), depth=16, stages=3)
GROUPS = WarpTile((128, 64), (64, 64), lanes=128, depth=64, stages=2)
CASES: dict[str, tuple[list[Tensor], WarpTile | None]] = {
    "float16": (product(128, 128, 64), None),
    "bfloat16, odd rows": (product(37, 40, 48, "bfloat16"), None),
    "odd rows and columns": (product(50, 37, 32, turned=True), None),
    "int8": (product(40, 33, 64, "int8", turned=True), None),
    "uint8": (product(17, 24, 64, "uint8", turned=True), None),
    "batches": (product(24, 40, 32, batches=2), None),
    "batches, odd rows": (product(19, 24, 32, turned=True, batches=3), None),
    "layer": (layer(50, 38, 64), None),
    "several warps": (product(70, 72, 80), DEEP),
    "warp groups": (product(130, 70, 192, turned=True), GROUPS),
    "layer, warp groups": (layer(64, 64, 128), GROUPS),
}
CASE = pytest.mark.parametrize("name", CASES)


def architecture(tile: WarpTile | None) -> str:
    return "sm_90a" if tile is not None and tile.lanes > 32 else "sm_80"


@CASE
def test_the_interpreter_finds_the_values_and_no_race(name: str) -> None:
    args, tile = CASES[name]
    check_schedule(scheduled(args, tile, architecture(tile)), args, targets=("interpreter",))


def test_a_symbolic_number_of_rows() -> None:
    args = product(te.var("m"), 24, 32, turned=True)
    assert chosen(args) is not None
    s = scheduled(args)
    for m in (1, 70):
        check_schedule(s, args, {"m": m}, targets=("interpreter",))


def numbers(tensor: Tensor) -> Array:
    """Small whole numbers, whose sums are exact."""
    rng, info = np.random.default_rng(7), dtypes.info(tensor.dtype)
    return rng.integers(0 if tensor.dtype == "uint8" else -3, 4, shape_of(tensor)).astype(info.numpy)


@pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
@pytest.mark.parametrize("mode", ["late", "at_once"])
@pytest.mark.parametrize("name", ["float16", "int8", "batches, odd rows", "several warps", "warp groups"])
def test_the_text_computes_the_product(name: str, mode: Literal["late", "at_once"]) -> None:
    args, tile = CASES[name]
    target = f"cuda -arch={architecture(tile)}"
    program = tensorlang.lower(scheduled(args, tile, architecture(tile)), args, target=target).kernel
    a, b, made = (numbers(tensor) for tensor in args)
    words = (x.view(np.uint16) if x.dtype.itemsize == 2 else x for x in (a, b, made))
    emulate_program(program, dict(zip((p.name for p in program.params), words, strict=True)), mode=mode, seed=3)
    right = b.swapaxes(-1, -2) if b.shape[-1] == a.shape[-1] else b
    np.testing.assert_array_equal(made, a.astype(made.dtype) @ right.astype(made.dtype))


OTHERWISE: dict[str, tuple[list[Tensor], str]] = {
    "terms that fill no instruction": (product(64, 64, 40), "cuda -arch=sm_80"),
    "odd columns side by side": (product(64, 37, 64), "cuda -arch=sm_80"),
    "bytes in rows": (product(64, 64, 64, "int8"), "cuda -arch=sm_80"),
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


def test_sums_in_16_bits_and_turned_rows_are_made_by_threads() -> None:
    a, b = te.placeholder((64, 64), "float16", "A"), te.placeholder((64, 48), "float16", "B")
    assert chosen([a, b, topi.matmul(a, b, transpose_a=True, out_dtype="float32")]) is None
    assert chosen([a, b, topi.matmul(a, b)]) is None
    assert chosen([a, b, topi.matmul(a, b, out_dtype="float32")]) is not None


def test_what_is_no_sum_is_made_by_threads() -> None:
    a, b = te.placeholder((32, 32), "float16", "A"), te.placeholder((32, 32), "float16", "B")
    k = te.reduce_axis((0, 32), "k")
    wide = "float32"
    best = te.compute((32, 32), lambda i, j: te.max(a[i, k].astype(wide) * b[k, j].astype(wide), axis=k), tag="matmul")
    assert chosen([a, b, best]) is None


def test_tiles_suit_the_shape_and_the_target() -> None:
    large = product(4096, 4096, 4096, "bfloat16", turned=True)
    assert chosen(large) == WarpTile((128, 128), (64, 32), depth=32, stages=4)
    assert chosen(large, "cuda -arch=sm_90a") == WarpTile((128, 256), (64, 256), lanes=128, depth=64, stages=4)
    found = chosen(product(4096, 4096, 4096, "bfloat16"), "cuda -arch=sm_90a")
    assert found is not None and found.lanes == 32  # rows of [k, n] are not what warp groups take
    small = chosen(product(512, 512, 512))
    assert small is not None and small.block[0] * small.block[1] < 128 * 128
    little = chosen(large, "cuda -arch=sm_90a -max_shared_memory_per_block=49152")
    assert little is not None and sum(little.block) * little.depth * 2 * little.stages <= 49152


MACHINE: dict[str, tuple[list[Tensor], str, str]] = {
    "float16": (product(4096, 4096, 4096), "sm_80", "HMMA.16816.F32"),
    "bfloat16 on Hopper": (product(4096, 4096, 4096, "bfloat16"), "sm_90a", "HMMA.16816.F32.BF16"),
    "layer": (layer(4096, 4096, 4096), "sm_80", "HMMA.16816.F32.BF16"),
    "odd layer": (layer(1000, 1001, 512), "sm_80", "HMMA.16816.F32.BF16"),
    "layer in warp groups": (layer(4096, 4096, 4096), "sm_90a", "HGMMA.64x256x16.F32.BF16"),
    "batches": (product(384, 64, 384, batches=96), "sm_80", "HMMA.16816.F32"),
    "any number of rows": (product(te.var("m"), 4096, 1024, turned=True), "sm_80", "HMMA.16816.F32"),
    "int8": (product(4096, 4096, 4096, "int8", turned=True), "sm_90a", "IGMMA.64x256x32.S8.S8"),
}


@needs_nvrtc
@pytest.mark.parametrize("name", MACHINE)
def test_the_machine_code(name: str) -> None:
    args, arch, instruction = MACHINE[name]
    with config.override(check=False):
        kernel = tensorlang.build(scheduled(args, arch=arch), args, target=f"cuda -arch={arch}")
    assert kernel.report.clean, kernel.report
    assert all(k.stack == 0 for k in kernel.report.kernels), kernel.report
    if disassembler() is None:
        pytest.skip("no nvdisasm: pip install nvidia-cuda-nvdisasm")
    found = Counter(re.findall(r"\b([A-Z][A-Z0-9]+(?:\.[A-Z0-9_x]+)*)\b", kernel.source("sass")))
    assert sum(count for word, count in found.items() if word.startswith(instruction)) >= 4
    assert found["LDGSTS.E.BYPASS.128"] >= 8
    assert not [word for word in found if word.startswith(("LDL", "STL"))]
    if "GMMA" not in instruction:
        assert [word for word in found if word.startswith("LDSM")]


@pytest.mark.parametrize(("target", "tag"), [("cuda", "matmul"), ("llvm -mcpu=sapphirerapids", "narrow_product")])
def test_products_are_declared_for_the_target_in_use(target: str, tag: str) -> None:
    a, b = (te.placeholder((64, 64), "bfloat16", name) for name in "AB")
    with parse(target):
        (made,) = (
            op for op in te.create_schedule(topi.matmul(a, b, out_dtype="float32").op).program.ops if op.name == "C"
        )
    assert isinstance(made, te.ComputeOp) and made.tag == tag
