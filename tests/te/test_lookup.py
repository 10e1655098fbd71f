"""Tables of 16 bytes: shuffles of vectors of any length, and the same on every target."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import te
from tensorlang.errors import DefinitionError
from tests.device_targets import on_cuda, on_opencl

SIGNED = [3, -5, 7, 100, -128, 127, 0, 1, 2, 4, 6, 8, 12, -12, 11, 9]
UNSIGNED = [*range(240, 256)]


def looked_up(numbers: list[int], count: int, target: str | None, bind: bool = False) -> Any:
    index = te.placeholder((count,), "uint8", "index")
    out = te.compute((count,), lambda i: te.lookup(index[i], numbers), name="out")
    s = te.create_schedule(out.op)
    if bind:
        s[out].bind("i", te.thread_axis("threadIdx.x"))
    elif target != "interpreter" and count > 1:
        s[out].vectorize("i")
    return tensorlang.build(s, [index, out], target=target), out.dtype


@pytest.mark.sampled(8)
@pytest.mark.covering(1)
@pytest.mark.parametrize("count", [1, 5, 16, 40, 64, 100, 200])
@pytest.mark.parametrize(
    "target", [None, "llvm -mcpu=haswell", "llvm -mcpu=nehalem", "llvm -mcpu=x86-64", "interpreter"]
)
def test_vectors_of_any_length(count: int, target: str | None) -> None:
    given = np.random.default_rng(count).integers(0, 256, count, dtype=np.uint8)
    for numbers in (SIGNED, UNSIGNED):
        kernel, dtype = looked_up(numbers, count, target)
        out = np.empty(count, dtype)
        kernel(given, out)
        np.testing.assert_array_equal(out, np.array(numbers)[given & 15])


@pytest.mark.parametrize("target", [on_opencl, on_cuda])
def test_devices(target: str) -> None:
    given = np.arange(256, dtype=np.uint8)
    kernel, _ = looked_up(SIGNED, 256, target, bind=True)
    out = np.empty(256, np.int8)
    kernel(given, out)
    np.testing.assert_array_equal(out, np.array(SIGNED)[given & 15])


@pytest.mark.parametrize(
    ("cpu", "word"), [("skylake-avx512", "vpshufb"), ("haswell", "vpshufb"), ("neoverse-n1", "tbl")]
)
def test_a_shuffle_is_what_a_vector_becomes(cpu: str, word: str) -> None:
    kernel, _ = looked_up(SIGNED, 64, f"llvm -mcpu={cpu}")
    assert word in kernel.source("asm")


@pytest.mark.parametrize(
    ("dtype", "numbers"), [("int32", UNSIGNED), ("uint8", UNSIGNED[1:]), ("uint8", [-1, *range(200, 215)])]
)
def test_wrong_tables(dtype: str, numbers: list[int]) -> None:
    index = te.placeholder((4,), dtype, "index")
    with pytest.raises(DefinitionError, match=r"takes an index of uint8 and 16 numbers of a byte, got"):
        te.lookup(index[0], numbers)
