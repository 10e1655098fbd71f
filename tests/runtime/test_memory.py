"""Memory of arrays: where they begin, that they lie apart, and the pages that are asked for."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import numpy as np
import pytest

from tensorlang import nd, te
from tensorlang.errors import ArgumentError
from tensorlang.runtime.memory import ALIGNMENT, HUGE_PAGE, aligned_empty


def asked_for_huge_pages(address: int) -> bool:
    """Whether the flags of the mapping that an address belongs to have `hg`."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        word = line.split()[0]
        if "-" in word and not word.endswith(":"):
            first, last = (int(part, 16) for part in word.split("-"))
            inside = first <= address < last
        elif inside and word == "VmFlags:":
            return "hg" in line.split()
    return False


def test_arrays_of_a_block_begin_with_lines_and_lie_apart() -> None:
    like = [
        te.placeholder((3, 5), "uint8"),
        np.ones(7, np.float16),
        te.placeholder((0, 4)),
        te.placeholder((), "int64"),
    ]
    arrays = nd.empty_together(like)
    assert [(a.shape, str(a.dtype)) for a in arrays] == [
        ((3, 5), "uint8"), ((7,), "float16"), ((0, 4), "float32"), ((), "int64"),
    ]  # fmt: skip
    for number, array in enumerate(arrays):
        assert array.ctypes.data % ALIGNMENT == 0 or not array.size
        array[...] = number
    assert [set(a.reshape(-1).tolist()) for a in arrays] == [{0}, {1.0}, set(), {3}]
    assert nd.empty_together([]) == []


def test_sizes_that_are_not_known_are_refused() -> None:
    with pytest.raises(ArgumentError, match="has no fixed shape"):
        nd.empty_together([te.placeholder((te.var("n"), 4))])


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux")
def test_large_blocks_ask_for_huge_pages() -> None:
    large = aligned_empty((HUGE_PAGE + 5,), np.uint8)
    small = nd.empty_together([np.empty(HUGE_PAGE // 8)] * 3)
    for array in (large, small[0], small[2]):
        assert asked_for_huge_pages(array.ctypes.data)
    assert large.ctypes.data % HUGE_PAGE == small[0].ctypes.data % HUGE_PAGE == 0


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_memory_that_was_used_before_is_made_huge_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[int, int, int]]()

    class Library:
        def madvise(self, begin: ctypes.c_void_p, length: ctypes.c_size_t, advice: int) -> None:
            asked.append((begin.value or 0, length.value, advice))

    monkeypatch.setattr("tensorlang.runtime.memory.ctypes.CDLL", lambda name: Library())
    large = aligned_empty((HUGE_PAGE + 5,), np.uint8)
    assert asked == [(large.ctypes.data, 2 * HUGE_PAGE, advice) for advice in (14, 25)]
