"""Virtual threads inside the loops that sum: where they go, and where they stay."""

from __future__ import annotations

import pytest

from tensorlang import lower, te
from tensorlang.ir.construct import StmtLike, array, indices, kernel, load, loop, store
from tensorlang.ir.expr import Expr, Var, binary
from tensorlang.ir.printer import stmt_text
from tensorlang.ir.stmt import For, If, LoopKind
from tensorlang.lowering.passes.interleave import interleave
from tensorlang.testing import check_schedule
from tests.programs import Case, matmul

b, k, t, v = indices("b k t v")

A, S, T = array("A", (4, 8), "int32"), array("S", (4,), "int32"), array("T", (4, 8), "int32")
ADD = store(S, v, load(S, v) + load(A, v, k))


def bound(var: Var, extent: Expr | int, body: StmtLike, thread: str) -> For:
    return loop(var, 0, extent, body, LoopKind.BOUND, thread)


def min_(a: int, b: Expr) -> Expr:
    return binary("min", a, b)


def order(body: StmtLike) -> list[str]:
    """The variables of the loops after the pass, outermost first."""
    text = stmt_text(interleave(kernel("f", [A, S, T], "S T", body)).body)
    return [line.split(" in range")[0].split()[-1] for line in text.splitlines() if " in range" in line]


def test_a_sum_runs_all_virtual_threads_in_each_step() -> None:
    assert order(bound(v, 4, loop(k, 0, 8, ADD), "vthread")) == ["k", "v"]
    assert order(bound(v, 4, bound(t, 1, loop(k, 0, 8, ADD), "threadIdx.x"), "vthread")) == ["t", "k", "v"]


def test_other_loops_stay_inside() -> None:
    elements = loop(k, 0, 8, store(T, (v, k), load(A, v, k)))
    assert order(bound(v, 4, elements, "vthread")) == ["v", "k"]
    assert order(bound(v, 4, loop(k, 0, v + 1, ADD), "vthread")) == ["v", "k"]
    assert order(bound(v, 4, [store(S, v, 0), loop(k, 0, 8, ADD)], "vthread")) == ["v", "k"]


def test_bounds_that_cut_the_last_tile_become_tests_inside() -> None:
    cut = bound(
        v, min_(4, 7 - 4 * b), bound(t, min_(8, 50 - 32 * b - 8 * v), loop(k, 0, 8, ADD), "threadIdx.x"), "vthread"
    )
    text = stmt_text(interleave(kernel("f", [A, S, T], "S T", cut)).body)
    lines = [line.strip() for line in text.splitlines()]
    assert lines[:4] == [
        "threadIdx.x t in range(8):",
        "for k in range(8):",
        "vthread v in range(4):",
        "if v < 7 - 4 * b and t < 50 - 32 * b - 8 * v:",
    ]


def test_tests_go_inside_where_a_sum_stands_in_them() -> None:
    assert order(bound(v, 4, If(v < 3, loop(k, 0, 8, ADD)), "vthread")) == ["k", "v"]
    assert order(bound(v, 4, If(load(S, 0) < 3, loop(k, 0, 8, ADD)), "vthread")) == ["v", "k"]
    assert order(bound(v, 4, If(v < 3, loop(k, 0, 8, ADD), store(S, v, 0)), "vthread")) == ["v", "k"]


@pytest.mark.parametrize("rows, tile", [(13, 8), (15, 16), (9, 8)])
def test_virtual_threads_of_a_cut_tile(rows: int, tile: int) -> None:
    s, args = virtual(0, rows, tile)
    lines = [line.strip() for line in str(lower(s, args, target="cuda")).splitlines()]
    step = lines.index("for k_i in range(3):")
    assert lines[step + 1] == "unrolled i_i_o in range(2):"
    check_schedule(s, args, targets=["interpreter"])


def virtual(unrolled: int, rows: int = 16, tile: int = 0) -> Case:
    """A product whose rows are two virtual threads on four threads each, with a copy of what it reads at every step."""
    s, args = matmul(rows, 8, 6)
    C = args[2]
    copies = s.cache_read(args[0], "local", [C]), s.cache_read(args[1], "shared", [C])
    sums = s.cache_write(C, "local")
    i, j = C.op.axis
    if tile:
        i_b, i = s[C].split(i, tile)
        s[C].bind(i_b, te.thread_axis("blockIdx.y"))
    i_v, i_i = s[C].split(i, nparts=2)
    i_t, i_i = s[C].split(i_i, nparts=4)
    s[C].bind(j, te.thread_axis("blockIdx.x"))
    s[C].reorder(*([j, i_b] if tile else [j]), i_v, i_t, i_i)
    s[C].bind(i_v, te.thread_axis("vthread"))
    s[C].bind(i_t, te.thread_axis("threadIdx.x"))
    s[sums].compute_at(s[C], i_t)
    i, j = s[sums].op.axis
    r_o, r_i = s[sums].split(s[sums].op.reduce_axis[0], factor=3)
    s[sums].reorder(r_o, r_i, i, j)
    s[copies[0]].compute_at(s[sums], r_i)
    s[copies[1]].compute_at(s[sums], r_o)
    s[sums].pragma(r_o, "auto_unroll_max_step", unrolled)
    return Case(s, args)


def test_virtual_threads_of_a_schedule() -> None:
    s, args = virtual(0)
    lines = [line.strip() for line in str(lower(s, args, target="cuda")).splitlines()]
    step = lines.index("for k_i in range(3):")
    assert lines[step + 1] == "unrolled i_o in range(2):"
    check_schedule(s, args, targets=["interpreter"])


def test_a_sum_around_virtual_threads_is_copied_as_asked() -> None:
    s, args = virtual(100)
    assert "for k_i" not in str(lower(s, args, target="cuda"))
    check_schedule(s, args, targets=["interpreter"])
