"""Sizes that no memory holds: a MemoryError, nothing written, and the next call as if nothing had been asked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tensorlang
from tensorlang.errors import ArgumentError
from tensorlang.ir.construct import array, indices, load, loop, store
from tensorlang.ir.expr import Expr
from tensorlang.ir.stmt import Allocate, Kernel, LoopKind, Seq, Stmt
from tensorlang.runtime.executable import Executable
from tensorlang.runtime.threads import arena, release_scratch
from tensorlang.target.backend import backend
from tensorlang.target.detect import parse

_ROOT = Path(__file__).parents[2]
i, n = indices("i n")
_OUT, _SHAPE = array("out", (1,)), array("shape", (n, 0), "int8")


def _compiled(body: Stmt, target: str = "llvm -num-cores=1") -> Executable:
    return backend("llvm").compile(Kernel("k", (_SHAPE, _OUT), (n,), ("out",), body), parse(target))


def _call(kernel: Executable, size: int) -> float:
    out = np.zeros(1, "f4")
    kernel(np.zeros((size, 0), "i1"), out)
    return float(out[0])


def test_a_refused_piece_within_another_is_not_asked_for_again() -> None:
    outer, inner = array("outer", (4,)), array("inner", (n * 1_000_000,))
    use = Seq((store(inner, 0, 2.0), store(_OUT, 0, load(inner, 0) + load(outer, 0))))
    region = loop(i, 0, 1, Allocate(inner, use), LoopKind.PARALLEL)
    kernel = _compiled(Allocate(outer, Seq((store(outer, 0, 1.0), region))))
    release_scratch()
    assert _call(kernel, 1) == 3
    with pytest.raises(MemoryError, match="k: no memory for its scratch buffers"):
        _call(kernel, 2**40)
    assert arena()[1] == 0
    assert _call(kernel, 1) == 3
    assert _call(kernel, 1) == 3


_WRAPPED = """
from tests.regressions.test_sizes_beyond_memory import refused
refused()
"""


def refused() -> None:
    """Call kernels whose scratch memory has 2**64 bytes, or more; a wrong size would crash the process."""
    held: list[tuple[int | Expr, ...]] = [(n, n), (n * n,), (2**40, 2**30)]
    beyond: list[tuple[int | Expr, ...]] = [
        (n * n * n,),
        (n * n * n - n * n, 2),
        (2, n * n * n * n + 5),
        (n * n * n - n * n * n * 2,),
    ]
    for shape in (*held, *beyond):
        scratch = array("scratch", shape)
        first = [0] * len(shape)
        fill = loop(i, 0, 1 << 20, store(scratch, [*first[1:], i], 2.0))
        kernel = _compiled(Allocate(scratch, Seq((fill, store(_OUT, 0, load(scratch, *first))))))
        fits = any(shape is one for one in held)
        why = "k: no memory for its scratch buffers" if fits else "k: these sizes are too large: .* beyond 64 bits"
        with pytest.raises(MemoryError if fits else ArgumentError, match=why):
            _call(kernel, 2**31)
        assert arena()[1] == 0


def test_bytes_of_scratch_memory_do_not_wrap_around() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WRAPPED], cwd=_ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("count", [2**31, 2**63, 2**64, 10**30])
def test_a_limit_beyond_all_threads_is_none(count: int) -> None:
    seen: list[float] = []
    kernel = _compiled(loop(i, 0, n, store(_OUT, 0, 1.0)))
    with tensorlang.threads(count):
        seen.append(_call(kernel, 1))
    assert seen == [1]
