"""What builds leave behind: nearly nothing, however many different kernels a process builds and drops."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable

import numpy as np
import pytest

import tensorlang
from tensorlang import config, te
from tensorlang.polyhedral import isl
from tensorlang.target.llvm import engine
from tensorlang.target.llvm.host import Machine

KERNEL = """
define void @kernel(ptr %a) {{
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %at = getelementptr float, ptr %a, i64 %i
  store float {0}.0, ptr %at
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, {0}
  br i1 %more, label %loop, label %end, !llvm.loop !0
end:
  ret void
}}
!0 = distinct !{{!0, !{{!"llvm.loop.unroll.disable"}}}}
"""
HOST = Machine("", "", "")

pytestmark = pytest.mark.skipif(sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="glibc")


_COUNTS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")


class _Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in _COUNTS]


def _allocated() -> int:
    """Bytes that are allocated from the C library, Python's own objects left out."""
    ask = ctypes.CDLL(None).mallinfo2
    ask.restype = _Info
    gc.collect()
    found = ask()
    return int(found.uordblks + found.hblkhd)


def _each(run: Callable[[int], object], count: int, first: int = 10) -> float:
    """KiB that every run leaves behind, once the first ones have filled what is kept on purpose."""
    for number in range(first):
        run(number)
    before = _allocated()
    for number in range(first, first + count):
        run(number)
    return (_allocated() - before) / count / 1024


def test_a_compilation_leaves_no_passes_constants_and_loops() -> None:
    assert _each(lambda n: engine.compile_object(KERNEL.format(1000 + n), HOST), 30) < 4  # 64 once


def test_a_library_leaves_nothing_with_its_linker() -> None:
    code = engine.compile_object(KERNEL.format(8), HOST)
    assert _each(lambda _: engine.load(code, ["kernel"], {}), 128, 96) < 2  # 9 once


def test_libraries_outlive_their_linker() -> None:
    code = engine.compile_object(KERNEL.format(3), HOST)
    libraries = [engine.load(code, ["kernel"], {}) for _ in range(80)]
    values = np.zeros(3, np.float32)
    for library in libraries:
        values[:] = 0
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(library.addresses["kernel"])(values.ctypes.data)
        assert (values == 3).all()


def test_a_map_leaves_nothing() -> None:
    rows = [[(0, 7), (1, -1)], [(1, 1)], [(0, 5), (2, -1)], [(2, 1)]]

    def make(_: int) -> object:
        return isl.map_of_rows((), 1, 1, 3, [[(1, 1), (2, -1)]], rows)

    assert _each(make, 100) < 0.1  # 1.1 once


def test_different_programs_built_and_dropped() -> None:
    def build(number: int) -> None:
        A = te.placeholder((8 + number,), name="A")
        B = te.compute((8 + number,), lambda i: A[i] * float(number), name="B")
        tensorlang.build(te.create_schedule(B.op), [A, B])

    with config.override(cache=False):
        assert _each(build, 20, 40) < 20  # 80 once; caches of a bounded size fill first
