"""The pragma `nontemporal`: outputs are written past the caches, at any alignment, and nothing else is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorlang as tl
from tensorlang import te
from tensorlang.errors import BadArgument

Array = np.ndarray[Any, Any]
NEON = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1"


def _built(parallel: bool = False, extent: int = 48, target: str = "llvm") -> Any:
    a = te.placeholder((10, extent), name="A")
    b = te.compute((10, extent), lambda i, j: a[i, j] + 1.0, name="B")
    s = te.create_schedule(b.op)
    s[b].vectorize("j")
    s[b].pragma("i", "nontemporal")
    if parallel:
        s[b].parallel("i")
    return tl.build(s, [a, b], target=target)


def _at(offset: int, shape: tuple[int, ...]) -> Array:
    """An array that begins so many bytes after a multiple of 64."""
    count = int(np.prod(shape))
    block = np.zeros(4 * count + 128, np.uint8)
    start = -block.ctypes.data % 64 + offset
    return block[start : start + 4 * count].view(np.float32).reshape(shape)


@pytest.mark.covering(1)
@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("extent", [48, 45, 16 * 20])
@pytest.mark.parametrize("offset", [0, 4, 16, 48])
def test_values_at_any_alignment(offset: int, extent: int, parallel: bool) -> None:
    values, out = np.arange(10.0 * extent, dtype="f4").reshape(10, extent), _at(offset, (10, extent))
    _built(parallel, extent)(values, out)
    np.testing.assert_array_equal(out, values + 1)


def test_the_kernel_says_so() -> None:
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[i] + 1.0, name="B")
    s = te.create_schedule(b.op)
    s[b].pragma("i", "nontemporal")
    assert "nontemporal B" in str(tl.lower(s, [a, b]))
    s[b].pragma("i", "nontemporal", False)
    assert "nontemporal" not in str(tl.lower(s, [a, b]))


@pytest.mark.parametrize("parallel", [False, True])
def test_x86_streams_and_fences(parallel: bool) -> None:
    text = _built(parallel, target="llvm -mcpu=skylake-avx512").source("asm")
    assert "vmovntps\t%zmm" in text and "vmovntps\t%xmm" in text
    assert text.count("sfence") >= 1
    written = [line for line in text.splitlines() if "vmovnt" in line or "sfence" in line]
    assert "sfence" in written[-1]


def test_arm_takes_a_hint() -> None:
    text = _built(target=NEON).source("asm")
    assert "stnp" in text and "sfence" not in text


def test_without_the_pragma_nothing_is_streamed() -> None:
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[i] + 1.0, name="B")
    s = te.create_schedule(b.op)
    s[b].vectorize("i")
    text = tl.build(s, [a, b], target="llvm -mcpu=skylake-avx512").source("asm")
    assert "movnt" not in text and "sfence" not in text


def test_an_array_that_is_read_again_is_not_streamed() -> None:
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((64,), lambda i: b[i] * 2.0, name="C")
    s = te.create_schedule([b.op, c.op])
    for stage in (b, c):
        s[stage].vectorize("i")
        s[stage].pragma("i", "nontemporal")
    text = tl.build(s, [a, b, c], target="llvm -mcpu=x86-64-v4").source("ll")
    assert "ptr %p1.B, align 4\n" in text and "ptr %p1.B, align 4, !nontemporal" not in text
    assert "ptr %p2.C, align 64, !nontemporal" in text
    values = np.arange(64, dtype="f4")
    out, last = np.zeros(64, "f4"), np.zeros(64, "f4")
    tl.build(s, [a, b, c])(values, out, last)
    np.testing.assert_array_equal(last, 2 * (values + 1))


def test_the_pragma_takes_a_flag() -> None:
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[i] + 1.0, name="B")
    s = te.create_schedule(b.op)
    with pytest.raises(BadArgument, match=r"takes True or False"):
        s[b].pragma("i", "nontemporal", 64)
