"""Scratch arrays whose extent falls below 0, as their loops run not at all: they have no memory, and disturb nobody."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import nd, te
from tensorlang.ir.construct import array, indices, load, loop, store
from tensorlang.ir.stmt import Allocate, Kernel, Seq, Stmt
from tensorlang.runtime.executable import Executable
from tensorlang.target.backend import backend
from tensorlang.target.detect import parse
from tensorlang.te.reference import evaluate

_ROOT = Path(__file__).parents[2]
SIZES = (2, 10, 500, 990, 998, 999, 1000, 1003)
n = te.var("n")


@te.hybrid.script
def rows(n: Any, A: Any, B: Any, C: Any) -> Any:
    for i in range(n):
        y = A[i] * 2
        C[i] = y + 1
    for i in range(n - 1000):
        for j in range(n):
            x = A[i] * A[j]
            B[i] = B[i] + x
    return B, C


def scripted(target: str) -> Executable:
    """y in n elements, and x in n - 1000 rows of n, beside each other."""
    A, B, C = (te.placeholder((n,), "int32", name=x) for x in "ABC")
    s = te.create_schedule(rows(n, A, B, C)[0].op)
    for axis in ("i", "j", "i_1"):
        s["rows"].fission(axis)
    built: Executable = tensorlang.build(s, [A, B, C], target=target)
    return built


def computed(target: str) -> tuple[Any, Executable]:
    """Three stages in scratch memory, that in the middle of n - 1000 rows."""
    A = te.placeholder((n,), "int32", name="A")
    W = te.compute((n, 3), lambda i, j: A[i] * (j + 1), name="W")
    X = te.compute((n - 1000, n), lambda i, j: A[i] + A[j], name="X")
    Y = te.compute((n, 2), lambda i, j: A[i] * 2 + j, name="Y")
    C = te.compute(
        (n,),
        lambda i: W[i, 0] + W[i, 2] + Y[n - 1 - i, 1] + te.if_then_else(i < n - 1000, X[i, i], 0),
        name="C",
    )
    s = te.create_schedule(C.op)
    for stage in (W, X, Y, C) if target == "opencl" else ():
        outer, inner = s[stage].split(stage.op.axis[0], factor=32)
        s[stage].bind(outer, te.thread_axis("blockIdx.x"))
        s[stage].bind(inner, te.thread_axis("threadIdx.x"))
    return s.program, tensorlang.build(s, [A, C], target=target)


def check_computed(target: str) -> None:
    program, kernel = computed(target)
    for size in SIZES:
        a, around = np.arange(size, dtype=np.int32), np.full(size + 32, -7, np.int32)
        kernel(a, around[16:-16])
        assert (around[:16] == -7).all() and (around[-16:] == -7).all()
        wanted = a * 4 + a[::-1] * 2 + 1
        wanted[: max(0, size - 1000)] += 2 * a[: max(0, size - 1000)]
        assert around[16:-16].tolist() == wanted.tolist(), size
        if size > 900:
            assert evaluate(program, [a])["C"].tolist() == wanted.tolist()


def check_scripted(target: str, sizes: tuple[int, ...]) -> None:
    kernel = scripted(target)
    for size in sizes:
        a, b, c = np.arange(size, dtype=np.int32), np.zeros(size, np.int32), np.zeros(size, np.int32)
        kernel(a, b, c)
        assert c.tolist() == (a * 2 + 1).tolist()
        count = max(0, size - 1000)
        assert b.tolist() == [*(a[:count] * a.sum()).tolist(), *[0] * (size - count)]


def compiled_checks() -> None:
    """What a fault would end the process in."""
    check_scripted("llvm", SIZES)
    check_computed("llvm")


def test_compiled_kernels_keep_the_heap_whole() -> None:
    code = "from tests.regressions.test_negative_extents import compiled_checks\ncompiled_checks()"
    watched = {"MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "165"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=_ROOT, capture_output=True, text=True, env=os.environ | watched, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_interpreter() -> None:
    check_computed("interpreter")
    check_scripted("interpreter", (2, 500, 999))


@pytest.mark.skipif(not nd.device("opencl").exist, reason="no OpenCL device")
def test_a_host_allocates_none_on_its_device() -> None:
    check_computed("opencl")


@pytest.mark.parametrize("target", ["llvm", "interpreter"])
def test_neighbours_keep_their_elements(target: str) -> None:
    i, j, size = indices("i j size")
    given, out = array("given", (size,)), array("out", (size,))
    before, after = array("before", (size,)), array("after", (size,))
    none, twice = array("none", (size - 100, size)), array("twice", (size - 100, size - 200))
    fill: list[Stmt] = [loop(i, 0, size, store(b, i, load(given, i) + k)) for k, b in enumerate((before, after))]
    idle: list[Stmt] = [
        loop(i, 0, size - 100, loop(j, 0, size, store(none, (i, j), 99.0))),
        loop(i, 0, size - 100, loop(j, 0, size - 200, store(twice, (i, j), 99.0))),
    ]
    body: Stmt = Seq((*fill, *idle, loop(i, 0, size, store(out, i, load(before, i) * load(after, i)))))
    for scratch in (before, none, after, twice):
        body = Allocate(scratch, body)
    kernel = backend(target).compile(Kernel("k", (given, out), (size,), ("out",), body), parse(target))
    for count in (1, 40, 99, 100):
        values, made = np.arange(count, dtype=np.float32), np.zeros(count, np.float32)
        kernel(values, made)
        assert made.tolist() == (values * (values + 1)).tolist()
