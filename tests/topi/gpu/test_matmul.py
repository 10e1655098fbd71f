"""Products of matrices on a GPU: every layout, dtype and shape against NumPy, and the machine code of the tile."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import config, te, topi
from tensorlang.schedules.gpu.product_plan import product_tile, stages_of
from tensorlang.target import parse
from tensorlang.target.cuda.sass import disassembler
from tensorlang.te.operation import Tensor
from tensorlang.testing import check_schedule
from tests.topi.gpu.device_runs import (
    TARGETS,
    compiled,
    each_architecture,
    needs_nvrtc,
    numbers,
    rules_for,
    run_on,
    scheduled,
)
from tests.topi.images import given, relu_of

GPU = parse("cuda -arch=sm_80")
targets = pytest.mark.parametrize("target", TARGETS)


def product(
    m: Any, n: Any, k: Any, transpose_a: bool = False, transpose_b: bool = False, dtype: str = "float32", out: str = ""
) -> list[Tensor]:
    """Two matrices and their product."""
    a = te.placeholder((k, m) if transpose_a else (m, k), dtype, "A")
    b = te.placeholder((n, k) if transpose_b else (k, n), dtype, "B")
    return [a, b, topi.matmul(a, b, transpose_a, transpose_b, out_dtype=out or None)]


def check(target: str, args: list[Tensor], **sizes: int) -> None:
    """Run the schedule of the last tensor, and compare with the reference."""
    s = topi.schedule(args[-1], rules_for(target), tuned=False)
    check_schedule(s, args, sizes, targets=(target,))


@pytest.mark.sampled(2)
@pytest.mark.covering(1)
@targets
@pytest.mark.parametrize(
    ("m", "n", "k", "transpose_a", "transpose_b"),
    [(64, 96, 40, False, False), (50, 37, 21, False, True), (33, 64, 17, True, False), (47, 19, 8, True, True)],
)
def test_layouts(m: int, n: int, k: int, transpose_a: bool, transpose_b: bool, target: str) -> None:
    check(target, product(m, n, k, transpose_a, transpose_b))


@pytest.mark.covering(1)
@targets
@pytest.mark.parametrize(("m", "n", "k"), [(1, 70, 300), (70, 1, 33), (3, 9, 1)])
def test_few_rows_or_columns(m: int, n: int, k: int, target: str) -> None:
    check(target, product(m, n, k, transpose_b=True))


@pytest.mark.sampled(2)
@pytest.mark.covering(1)
@targets
@pytest.mark.parametrize(
    ("dtype", "out"), [("float16", "float32"), ("float64", ""), ("int8", "int16"), ("bfloat16", "bfloat16")]
)
def test_dtypes(dtype: str, out: str, target: str) -> None:
    check(target, product(36, 40, 24, transpose_b=dtype == "float16", dtype=dtype, out=out))


@pytest.mark.sampled(1)
@targets
def test_terms_in_parts(target: str) -> None:
    a, b, made = product(20, 17, 1024)
    bias = te.placeholder((17,), name="bias")
    out = relu_of(made, bias)
    assert [stage.name for stage in scheduled(out).stages if stage.name.startswith("C.rf")]
    check(target, [a, b, bias, out])


@pytest.mark.sampled(1)
@targets
def test_rows_of_tiles_together(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorlang.schedules.gpu.product.rows_together", lambda *_: 2)
    args = product(60, 40, 8)
    assert "blockIdx.x % 2" in str(tensorlang.lower(scheduled(args[-1]), args, target=GPU))
    check(target, args)


@pytest.mark.sampled(1)
@targets
def test_a_symbolic_number_of_rows(target: str) -> None:
    args = product(te.var("m"), 24, 20)
    kernel = tensorlang.build(topi.schedule(args[-1], rules_for(target), tuned=False), args, target=target)
    b = numbers(args[1])
    for m in (0, 1, 19):
        a, made = np.resize(b[::-1], (m, 20)), np.full((m, 24), 77, np.float32)
        kernel(a, b, made)
        np.testing.assert_array_equal(made, a @ b)


@pytest.mark.sampled(1)
@targets
def test_symbolic_sizes(target: str) -> None:
    check(target, product(te.var("m"), te.var("n"), te.var("k")), m=17, n=30, k=21)


@pytest.mark.covering(1)
@targets
@pytest.mark.parametrize("transpose_b", [False, True])
def test_batches(transpose_b: bool, target: str) -> None:
    a = te.placeholder((3, 20, 17), name="a")
    b = te.placeholder((3, 33, 17) if transpose_b else (1, 17, 33), name="b")
    check(target, [a, b, topi.batch_matmul(a, b, transpose_b=transpose_b)])


@pytest.mark.sampled(1)
@targets
def test_symbolic_batches(target: str) -> None:
    q = te.var("batch")
    a, b = te.placeholder((q, 9, 12), name="a"), te.placeholder((q, 18, 12), name="b")
    check(target, [a, b, topi.batch_matmul(a, b)], batch=2)


@pytest.mark.sampled(1)
@targets
def test_what_follows_is_computed_in_the_tile(target: str) -> None:
    x, w, bias = te.placeholder((40, 24), name="x"), te.placeholder((30, 24), name="w"), te.placeholder((30,), name="b")
    out = relu_of(topi.dense(x, w), bias)
    assert {stage.name for stage in scheduled(out).stages} >= {"relu", "dense"}
    assert scheduled(out).state.stages["dense"].storage.scope == "local"
    check(target, [x, w, bias, out])


@pytest.mark.sampled(1)
@targets
def test_packed_weights(target: str) -> None:
    x, w = te.placeholder((20, 12), name="x"), te.placeholder((3, 12, 16), name="w")
    check(target, [x, w, topi.dense_packed(x, w, 41)])


@pytest.mark.sampled(1)
@targets
def test_a_matrix_with_its_own_transpose(target: str) -> None:
    a, x = given("a", 19, 12)
    made = run_on(target, topi.matmul(a, a, transpose_b=True), (19, 19), (a, x))
    np.testing.assert_array_equal(made, x @ x.T)


def test_tiles_suit_the_shape() -> None:
    def tile(m: int, n: int, bits: int = 32) -> tuple[int, int, int]:
        found = product_tile(m, n, 1, bits, bits, GPU)
        return found.rows.extent, found.columns.extent, found.threads

    assert tile(4096, 4096) == (128, 128, 256)
    assert tile(4096, 40)[1] <= 64 and tile(40, 4096)[0] <= 64
    assert tile(512, 512)[0] * tile(512, 512)[1] < 128 * 128  # more blocks than so few tiles would be
    assert tile(4096, 4096, 64)[0] == 64
    assert product_tile(None, 4096, 1, 32, 32, GPU) == product_tile(4096, 4096, 1, 32, 32, GPU)


def test_copies_are_ahead_where_they_are_asynchronous() -> None:
    assert [stages_of(parse(t)) for t in ("cuda -arch=sm_75", "cuda -arch=sm_90a", "cuda", "opencl")] == [1, 3, 3, 1]


@pytest.mark.sampled(2)
@needs_nvrtc
@pytest.mark.covering(1)
@each_architecture
@pytest.mark.parametrize(
    ("m", "n", "k", "transpose_b", "dtype"),
    [
        (1000, 777, 333, False, "float32"),
        (128, 768, 3072, True, "float32"),
        (256, 256, 8192, False, "float32"),
        (2048, 2048, 2048, False, "float64"),
        (2048, 2048, 2048, True, "float16"),
        (1, 4096, 4096, True, "float32"),
    ],
)
def test_no_kernel_spills(m: int, n: int, k: int, transpose_b: bool, dtype: str, arch: str) -> None:
    *inputs, out = product(m, n, k, transpose_b=transpose_b, dtype=dtype, out="float32" if dtype == "float16" else "")
    with config.override(check=False):
        compiled(out, *inputs, archs=[arch])


@pytest.mark.sampled(1)
@needs_nvrtc
@pytest.mark.skipif(disassembler() is None, reason="no nvdisasm: pip install nvidia-cuda-nvdisasm")
@each_architecture
def test_the_machine_code_of_a_large_tile(arch: str) -> None:
    *inputs, out = product(4096, 4096, 4096)
    with config.override(check=False):
        kernel = tensorlang.build(scheduled(out, arch=arch), [*inputs, out], target=f"cuda -arch={arch}")
    code = kernel.source("sass")

    def count(instruction: str) -> int:
        return len(re.findall(rf"\s{re.escape(instruction)}[\w.]*\s", code))

    terms = 8
    assert count("FFMA") == terms * 64  # every multiply-add of a step, written out once
    assert count("LDS.128") == terms * 4  # 8 rows and 8 columns of a term, 4 at a time
    assert count("LDGSTS.E.BYPASS.128") >= 1 and count("LDGSTS") >= 5  # rows at once, columns turned around
    assert count("STG.E.128") == 16
    assert count("LDL") == count("STL") == 0
