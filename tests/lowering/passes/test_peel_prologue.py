"""Loops from below zero: cut at zero where both parts are sure, and the same as before."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang import lower, te
from tensorlang.ir.interpret import run
from tensorlang.ir.stmt import For, Kernel, Stmt, walk
from tensorlang.lowering.passes.peel_prologue import peel_prologue
from tensorlang.testing.check import check_schedule


def pipelined(extent: te.Expr | int, stages: int) -> tuple[Kernel, te.Tensor]:
    a = te.placeholder((extent,), name="A")
    b = te.compute((extent,), lambda i: a[i] * 2, name="B")
    c = te.compute((extent,), lambda i: b[i] + 1, name="C")
    s = te.create_schedule(c.op)
    i_o, _ = s[c].split("i", factor=4)
    s[b].compute_at(s[c], i_o)
    s[b].pipeline(stages)
    return lower(s, [a, c]).kernel, c


def bounds(stmt: Stmt) -> list[tuple[str, str]]:
    return [(str(s.lower), str(s.upper)) for s in walk(stmt) if isinstance(s, For) and s.axis == "i_o"]


@pytest.mark.parametrize("stages", [2, 3, 5])
def test_the_first_iterations_become_a_loop_of_their_own(stages: int) -> None:
    kernel, _ = pipelined(40, stages)
    peeled = peel_prologue(kernel)
    assert bounds(kernel.body) == [(str(1 - stages), "10")]
    assert bounds(peeled.body) == [(str(1 - stages), "0"), ("0", "10")]
    data = np.arange(40, dtype=np.float32)
    for made in (kernel, peeled):
        out = np.zeros(40, np.float32)
        run(made, {"A": data, "C": out})
        np.testing.assert_array_equal(out, data * 2 + 1)


def test_a_bound_that_may_be_below_zero_stays() -> None:
    kernel, _ = pipelined(te.var("n"), 3)
    assert bounds(peel_prologue(kernel).body) == bounds(kernel.body)


def test_it_serves_pipelines_on_threads() -> None:
    a = te.placeholder((64,), name="A")
    c = te.compute((64,), lambda i: a[i] + 1, name="C")
    s = te.create_schedule(c.op)
    copy = s.cache_read(a, "shared", [c])
    block, rest = s[c].split("i", factor=32)
    i_o, i_i = s[c].split(rest, factor=8)
    s[c].bind(block, "blockIdx.x")
    s[c].bind(i_i, "threadIdx.x")
    s[copy].compute_at(s[c], i_o)
    s[copy].bind("ax0", "threadIdx.x")
    s[copy].pipeline(3)
    text = str(lower(s, [a, c], target="cuda"))
    assert "range(-2, 0)" in text and "if i_i_o >= 0" not in text
    check_schedule(s, [a, c], targets=["interpreter"])
