"""Virtual threads inside the loops that sum: where they go, and where they stay."""

from __future__ import annotations

from tensorlang import lower, te
from tensorlang.ir.construct import StmtLike, array, indices, kernel, load, loop, store
from tensorlang.ir.expr import Expr, Var
from tensorlang.ir.printer import stmt_text
from tensorlang.ir.stmt import For, LoopKind
from tensorlang.lowering.passes.interleave import interleave
from tensorlang.testing import check_schedule
from tests.programs import Case, matmul

k, t, v = indices("k t v")
A, S, T = array("A", (4, 8), "int32"), array("S", (4,), "int32"), array("T", (4, 8), "int32")
ADD = store(S, v, load(S, v) + load(A, v, k))


def bound(var: Var, extent: Expr | int, body: StmtLike, thread: str) -> For:
    return loop(var, 0, extent, body, LoopKind.BOUND, thread)


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


def virtual(unrolled: int) -> Case:
    """A product whose rows are two virtual threads on four threads each, with a copy of what it reads at every step."""
    s, args = matmul(16, 8, 6)
    C = args[2]
    copies = s.cache_read(args[0], "local", [C]), s.cache_read(args[1], "shared", [C])
    sums = s.cache_write(C, "local")
    i, j = C.op.axis
    i_v, i_i = s[C].split(i, nparts=2)
    i_t, i_i = s[C].split(i_i, nparts=4)
    s[C].bind(j, te.thread_axis("blockIdx.x"))
    s[C].reorder(j, i_v, i_t, i_i)
    s[C].bind(i_v, te.thread_axis("vthread"))
    s[C].bind(i_t, te.thread_axis("threadIdx.x"))
    s[sums].compute_at(s[C], i_t)
    rows, columns = s[sums].op.axis
    r_o, r_i = s[sums].split(s[sums].op.reduce_axis[0], factor=3)
    s[sums].reorder(r_o, r_i, rows, columns)
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
