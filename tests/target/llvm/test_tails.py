"""Vector loops whose extent is not a multiple of the lanes: no iteration missed, none too many, and no scalar code."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tensorlang import dtypes
from tensorlang.ir.construct import array, indices, load, loop, store
from tensorlang.ir.construct import kernel as build
from tensorlang.ir.expr import Call, Expr, binary
from tensorlang.ir.stmt import Allocate, Kernel, LoopKind
from tensorlang.runtime.executable import Executable

Compile = Callable[..., Executable]
VECTORIZED = LoopKind.VECTORIZED
ROW, AT, SIZE = indices("i j n")
AVX512, AVX2 = "llvm -mcpu=skylake-avx512", "llvm -mcpu=haswell"
NEON = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1"


def _copy(extent: Expr | int, length: Expr | int, dtype: str = "float32", updating: bool = False) -> Kernel:
    """B[j] = A[j] + 1, or B[j] = B[j] + A[j], for j below `extent`."""
    a, b = array("A", (length,), dtype), array("B", (length,), dtype)
    value = load(b, AT) + load(a, AT) if updating else load(a, AT) + 1
    sizes = [SIZE] if isinstance(length, Expr) else []
    return build("copy", [a, b], "B", loop(AT, 0, extent, store(b, AT, value), VECTORIZED), sizes)


@pytest.mark.covering(1)
@pytest.mark.parametrize("updating", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64"])
@pytest.mark.parametrize("known", [False, True])
def test_every_tail_is_run_and_nothing_else(compiled: Compile, known: bool, dtype: str, updating: bool) -> None:
    numpy_type = dtypes.info(dtype).numpy
    extents = (1, 3, 11, 16, 29, 47) if known else range(140)
    executable = None if known else compiled(_copy(SIZE // 2, SIZE, dtype, updating))
    for extent in extents:
        length = 2 * extent + 1
        a = (np.arange(length) % 50).astype(numpy_type)
        b = np.full(length, 7, numpy_type)
        run = executable or compiled(_copy(extent, length, dtype, updating))
        run(a, b)
        expected = np.full(length, 7, numpy_type)
        expected[:extent] = (7 + a if updating else a + 1).astype(numpy_type)[:extent]
        np.testing.assert_array_equal(b, expected, err_msg=f"extent {extent}")


def test_a_tile_that_is_cut(compiled: Compile) -> None:
    a, b = array("A", (SIZE,)), array("B", (SIZE,))
    body = store(b, 8 * ROW + AT, load(a, 8 * ROW + AT) * 2.0)
    cut = loop(AT, 0, binary("min", SIZE - 8 * ROW, 8), body, VECTORIZED)
    executable = compiled(build("cut", [a, b], "B", loop(ROW, 0, (SIZE + 7) // 8, cut), [SIZE]))
    for size in range(1, 40):
        values, out = np.arange(size, dtype="f4"), np.zeros(size, "f4")
        executable(values, out)
        np.testing.assert_array_equal(out, 2 * values)


@pytest.mark.parametrize("length", [100, SIZE])
def test_streams_are_masked(compiled: Compile, length: Expr | int) -> None:
    extent = length if isinstance(length, Expr) else 29
    text = compiled(_copy(extent, length), AVX512).source("asm")
    assert "{%k1}" in text
    assert "vaddss" not in text
    assert "vmaskmovps" in compiled(_copy(extent, length), AVX2).source("asm")


def test_a_power_of_two_needs_no_mask(compiled: Compile) -> None:
    text = compiled(_copy(24, 24), AVX512).source("asm")
    assert "%k1" not in text and "%ymm" in text


@pytest.mark.parametrize("target", [AVX512, AVX2, NEON])
def test_updates_run_in_narrower_pieces(compiled: Compile, target: str) -> None:
    text = compiled(_copy(SIZE, SIZE, updating=True), target).source("ll")
    assert "masked" not in text
    widths = {AVX512: (16, 8, 4, 2), AVX2: (8, 4, 2), NEON: (4, 2)}[target]
    assert all(f"load <{width} x float>" in text for width in widths)
    assert "load float" in text


def test_narrow_types_have_no_masks_on_avx2(compiled: Compile) -> None:
    assert "masked" not in compiled(_copy(SIZE, SIZE, "int8"), AVX2).source("ll")
    assert "masked" in compiled(_copy(SIZE, SIZE, "int8"), AVX512).source("ll")


def test_buffers_in_registers_are_not_masked(compiled: Compile) -> None:
    a, held = array("A", (13,)), array("H", (13,), scope="local")
    body = [
        loop(AT, 0, 13, store(held, AT, load(a, AT) * 3.0), VECTORIZED),
        loop(ROW, 0, 13, store(a, ROW, load(held, ROW)), VECTORIZED),
    ]
    executable = compiled(Kernel("k", (a,), (), ("A",), Allocate(held, loop(SIZE, 0, 1, body))), AVX512)
    assert "%rsp" not in executable.source("asm")
    assert "masked" not in executable.source("ll")


def test_a_long_body_is_not_copied_for_every_width(compiled: Compile) -> None:
    a = array("A", (40, SIZE))
    stores = [store(a, (row, AT), load(a, row, AT) + 1.0) for row in range(40)]
    executable = compiled(build("long", [a], "A", loop(AT, 0, SIZE, stores, VECTORIZED), [SIZE]))
    assert "<4 x float>" not in executable.source("ll")
    values = np.zeros((40, 37), "f4")
    executable(values)
    assert (values == 1).all()


def test_math_in_a_masked_tail(compiled: Compile) -> None:
    a, b = array("A", (SIZE,)), array("B", (SIZE,))
    value = Call("exp", (load(a, AT),), "float32")
    executable = compiled(build("e", [a, b], "B", loop(AT, 0, SIZE, store(b, AT, value), VECTORIZED), [SIZE]))
    for size in (1, 5, 16, 31):
        values, out = np.linspace(-5, 5, size, dtype="f4"), np.zeros(size, "f4")
        executable(values, out)
        np.testing.assert_allclose(out, np.exp(values), rtol=3e-7)


def test_rows_shorter_than_a_register_are_one_vector(compiled: Compile) -> None:
    text = compiled(_copy(11, 11), AVX512).source("ll")
    assert "load <11 x float>" in text and "masked" not in text
