"""Products that were laid out for a CPU's dot instructions, and are scheduled for a GPU."""

from __future__ import annotations

import numpy as np
import pytest

import tensorlang
from tensorlang import te, topi
from tensorlang.schedules.plain import schedule_of_plain
from tensorlang.target import parse
from tensorlang.te.operation import Tensor
from tensorlang.testing import check_schedule
from tests.topi.images import relu_of

CPU, GPU = "llvm -mcpu=sapphirerapids", "cuda -arch=sm_80"


def layer(dtype: str, total: str) -> list[Tensor]:
    """A dense layer with biases and relu, declared for a CPU that has dot instructions."""
    x, w = te.placeholder((20, 32), dtype, "x"), te.placeholder((19, 32), dtype, "w")
    bias = te.placeholder((19,), total, "bias")
    with parse(CPU):
        return [x, w, bias, relu_of(topi.matmul(x, w, transpose_b=True, out_dtype=total), bias)]


@pytest.mark.parametrize(("dtype", "total"), [("bfloat16", "float32"), ("int8", "int32")])
def test_a_gpu_gets_the_product_as_it_was_given(dtype: str, total: str) -> None:
    args = layer(dtype, total)
    assert "C_packed" in te.create_schedule(args[-1].op).program.by_name
    s = topi.schedule(args[-1], GPU, tuned=False)
    assert "cuda.mma" in str(s.trace)
    assert not [op.name for op in s.original.ops if "packed" in op.name]
    check_schedule(s, args, targets=("interpreter",))


def test_tensors_that_were_declared_name_the_stages() -> None:
    x, w = te.placeholder((20, 32), "bfloat16", "x"), te.placeholder((19, 32), "bfloat16", "w")
    with parse(CPU):
        product = topi.matmul(x, w, transpose_b=True, out_dtype="float32")
    out = te.compute((20, 19), lambda i, j: product[i, j] * 2, name="out")
    s = topi.schedule(out, GPU, tuned=False)
    assert s[product].op.tag == "matmul"
    assert s[out].name == "out"
    assert out.op in s.outputs and product.op not in s.outputs


def test_other_programs_and_targets_stay_as_they_are() -> None:
    args = layer("bfloat16", "float32")
    assert "C_packed" in topi.schedule(args[-1], CPU, tuned=False).original.by_name
    a = te.placeholder((8,), name="a")
    plain = te.compute((8,), lambda i: a[i] + 1, name="plain")
    assert schedule_of_plain([plain]).original.key == te.create_schedule(plain.op).original.key


def test_a_product_that_something_else_reads_stays_laid_out() -> None:
    x, w = te.placeholder((16, 32), "bfloat16", "x"), te.placeholder((16, 32), "bfloat16", "w")
    with parse(CPU):
        c = topi.matmul(x, w, transpose_b=True, out_dtype="float32")

    def fill(given: np.ndarray, made: np.ndarray) -> None:
        made[...] = given

    copied = te.extern((16, 16), [c], fill, name="copied", dtype="float32")
    assert "C_packed" in schedule_of_plain([copied]).original.by_name
    assert tensorlang.lower(schedule_of_plain([c]), [x, w, c]) is not None
