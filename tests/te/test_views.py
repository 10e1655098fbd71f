"""Bytes seen as other dtypes: bits of floats, halves and quarters of bytes, words of several bytes."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401  (NumPy learns of bfloat16)
import numpy as np
import numpy.typing as npt
import pytest

import tensorlang
from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.te.operation import Tensor

Array = npt.NDArray[Any]
ROWS = np.random.default_rng(0).integers(0, 256, (21, 16), dtype=np.uint8)
WHOLE = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float32", "float64", "int8", "uint16", "int64")
PARTS = ("uint4", "int4", "uint2", "int2", "uint1", "int1")


def seen(dtype: str) -> Array:
    """The rows as NumPy sees them."""
    if dtype in WHOLE:
        return ROWS.view(dtypes.info(dtype).numpy)
    bits = int(dtype[-1])
    parts = np.stack([ROWS >> n & (1 << bits) - 1 for n in range(0, 8, bits)], -1).reshape(len(ROWS), -1)
    return parts if dtype[0] == "u" else ((parts ^ 1 << bits - 1).astype(np.int8) - (1 << bits - 1)).astype(np.int8)


def of_bytes(dtype: str) -> tuple[Tensor, Tensor]:
    wanted = seen(dtype)
    rows = te.placeholder(ROWS.shape, "uint8", "rows")
    view = te.view(rows, dtype)
    return rows, te.compute(wanted.shape, lambda i, j: view[i, j], name="seen")


def same_bits(got: Array, wanted: Array) -> None:
    """NaNs are NaNs, whatever else is in them."""
    with np.errstate(invalid="ignore"):
        numbers, kept = wanted == wanted, got == got
    assert got.dtype == wanted.dtype and not kept[~numbers].any()
    np.testing.assert_array_equal(bits(got)[numbers], bits(wanted)[numbers])


def bits(array: Array) -> Array:
    return np.ascontiguousarray(array).view(np.uint8).reshape(*array.shape, -1)


@pytest.mark.parametrize("vector", ["i", "j", None])
@pytest.mark.parametrize("dtype", [*WHOLE, *PARTS])
def test_views_in_vectors_are_those_of_numpy(dtype: str, vector: str | None) -> None:
    rows, out = of_bytes(dtype)
    s = te.create_schedule(out.op)
    if vector == "i":
        s[out].reorder("j", "i")
    if vector:
        s[out].vectorize(vector)
    got = np.empty_like(seen(dtype))
    tensorlang.build(s, [rows, out])(ROWS, got)
    same_bits(got, seen(dtype))


@pytest.mark.parametrize("target", ["interpreter", "opencl"])
@pytest.mark.parametrize("dtype", [*WHOLE, "int4", "uint2"])
def test_views_on_other_targets(dtype: str, target: str) -> None:
    if target == "opencl":
        pytest.importorskip("pyopencl")
    rows, out = of_bytes(dtype)
    s = te.create_schedule(out.op)
    if target == "opencl":
        s[out].bind("i", te.thread_axis("blockIdx.x"))
    got = np.empty_like(seen(dtype))
    tensorlang.build(s, [rows, out], target=target)(ROWS, got)
    same_bits(got, seen(dtype))


@te.hybrid.script
def halves(words: Any) -> Any:
    found = te.output_tensor((len(words),), "float32")
    for i in range(len(words)):
        found[i] = te.reinterpret("float16", words[i]) + te.reinterpret("float32", te.cast(1065353216, "int32"))
    return found


def test_scripts_reinterpret_in_python_and_in_kernels() -> None:
    words = np.array([0x3C00, 0x0001, 0xC000], np.uint16)
    wanted = words.view(np.float16).astype(np.float32) + 1
    np.testing.assert_array_equal(halves(words), wanted)
    given = te.placeholder((3,), "uint16", "words")
    out, got = halves(given), np.empty(3, np.float32)
    tensorlang.build(te.create_schedule(out.op), [given, out])(words, got)
    np.testing.assert_array_equal(got, wanted)


def test_a_float_goes_to_its_bits_and_back() -> None:
    x = te.placeholder((5,), "float32", "x")
    raised = te.compute((5,), lambda i: te.reinterpret("float32", te.reinterpret("int32", x[i]) + (1 << 23)), name="y")
    given, got = np.array([1, -3.5, 1e-20, 7e9, 0.1], np.float32), np.empty(5, np.float32)
    s = te.create_schedule(raised.op)
    s[raised].vectorize("i")
    tensorlang.build(s, [x, raised])(given, got)
    np.testing.assert_array_equal(got, 2 * given)


def test_a_read_beyond_the_bytes_is_refused() -> None:
    rows = te.placeholder((4, 7), "uint8", "rows")
    with pytest.raises(DefinitionError, match="rows"):
        tensorlang.build([rows, te.compute((4, 4), lambda i, j: te.view(rows, "float16")[i, j], name="beyond")])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: te.view(x, "uint4"), r"takes a uint8 tensor of one dimension or more, got float32\[4\]"),
        (lambda x: te.view(te.placeholder((), "uint8", "b"), "uint4"), r"got uint8\[\]"),
        (lambda x: te.view(te.placeholder((4,), "uint8", "b"), "bool"), "no bool; use uint1"),
        (lambda x: te.view(te.placeholder((4,), "uint8", "b"), "uint3"), "unknown dtype 'uint3'"),
        (lambda x: te.reinterpret("float16", x[0]), "float32 has 32 bits, float16 has 16"),
        (lambda x: te.reinterpret("int8", x[0].astype("int8") > 0), "has 1 bits|no bits"),
    ],
)
def test_wrong_views(make: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        make(te.placeholder((4,), "float32", "x"))
