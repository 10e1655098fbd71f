"""What a condition guards is not read where the condition is false: there the array may have ended."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, mmap, sys
import numpy as np
import tensorlang
from tensorlang import te

rows, columns, more, page = 32, 20, 12, mmap.PAGESIZE
A = te.placeholder((rows, columns), "float32", "A")
above = lambda c, w: te.if_then_else(te.all(c < columns, w < rows), A[w, c], 0)
below = lambda c, w: te.if_then_else(te.all(c >= more, w >= more), A[w - more, c - more], 0)
after = sys.argv[1] == "after"
B = te.compute((columns + more, rows + more), above if after else below, name="B")
s = te.create_schedule(B.op)
s[B].reorder("w", "c")
s[B].vectorize("w")
kernel = tensorlang.build(s, [A, B])

size = rows * columns * 4
pages = -(-size // page)
memory = mmap.mmap(-1, (pages + 2) * page)
protect = ctypes.CDLL(None).mprotect
protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
for guard in (0, pages + 1):
    assert protect(start + guard * page, page, 0) == 0
a = np.frombuffer(memory, "float32", rows * columns, (pages + 1) * page - size if after else page)
a = a.reshape(rows, columns)
a[...] = np.arange(a.size).reshape(a.shape)
made = np.ones((columns + more, rows + more), "float32")
kernel(a, made)
wanted = np.zeros_like(made)
wanted[(slice(columns), slice(rows)) if after else (slice(more, None), slice(more, None))] = a.T
assert (made == wanted).all()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="pages are protected by mprotect of Linux")
@pytest.mark.parametrize("where", ["before", "after"])
def test_padding_of_a_transposed_array_between_pages_that_cannot_be_read(where: str) -> None:
    command = [sys.executable, "-c", PROGRAM, where]
    run = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
