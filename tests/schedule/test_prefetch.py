"""Prefetches: what is brought closer, where, and that nothing else changes; refusals with a reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorlang import build, lower, te
from tensorlang.errors import BadArgument
from tensorlang.schedule import Schedule
from tensorlang.schedule.trace import Trace
from tensorlang.testing.check import check_schedule


def product(rows: Any = 20, columns: int = 40) -> tuple[Schedule, list[te.Tensor]]:
    a, w = te.placeholder((rows, 24), name="A"), te.placeholder((24, columns), name="W")
    k = te.reduce_axis((0, 24), "k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * w[k, j], axis=k), name="C")
    return te.create_schedule(c.op), [a, w, c]


def chain() -> tuple[Schedule, list[te.Tensor]]:
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[i] + 1, name="B")
    c = te.compute((64,), lambda i: b[i] * 2, name="C")
    return te.create_schedule(c.op), [a, c]


def test_the_region_of_a_later_iteration_line_by_line() -> None:
    s, args = product()
    k_o, k_i = s["C"].split("k", factor=8)
    s["C"].reorder("i", k_o, k_i, "j")
    s["C"].prefetch(args[1], k_o, 2)
    text = str(lower(s, args))
    assert (
        "for W.p0 in range(8):\n        for W.p1 in range(3):\n          prefetch W[8 * k_o + W.p0 + 16, 16 * W.p1]"
        in text
    )
    check_schedule(s, args)


def test_the_dtype_decides_how_many_elements_a_line_holds() -> None:
    a = te.placeholder((4, 100), "int8", name="A")
    b = te.compute((4, 100), lambda i, j: a[i, j], name="B")
    s = te.create_schedule(b.op)
    s[b].prefetch(a, "i", 1)
    assert "for A.p1 in range(2):\n      prefetch A[i + 1, 64 * A.p1]" in str(lower(s, [a, b]))


def test_a_line_holds_whole_rows_of_the_last_dimensions() -> None:
    a = te.placeholder((8, 6, 16, 4), "int8", name="A")
    b = te.compute((8, 16, 4), lambda i, j, k: a[i, 5, j, k] + a[i, 0, j, k], name="B")
    s = te.create_schedule(b.op)
    s[b].prefetch(a, "i", 1)
    text = str(lower(s, [a, b]))
    assert "for A.p1 in range(6):\n" in text and "prefetch A[i + 1, A.p1, 0, 0]" in text
    check_schedule(s, [a, b])


@pytest.mark.parametrize("rows", [0, 1, 3, 17])
def test_symbolic_sizes_tails_and_lanes(rows: int) -> None:
    s, args = product(te.var("n"))
    i_o, j_o, i_i, j_i = s["C"].tile("i", "j", 4, 16)
    s["C"].reorder(i_o, j_o, "k", i_i, j_i)
    s["C"].vectorize(j_i)
    s["C"].prefetch("A", i_i, 1)
    s["C"].prefetch("W", j_i, 16)
    s["C"].prefetch("W", j_o, -1)
    check_schedule(s, args, sizes={"n": rows})


def test_the_compiler_keeps_it() -> None:
    s, args = product()
    s["C"].prefetch("W", "k", 4)
    assert "prefetch" in build(s, args).source("asm")


def test_the_cache_that_it_is_brought_into() -> None:
    s, args = product()
    s["C"].prefetch("W", "k", 4, level=2)
    assert "prefetch W[k + 4, j] into cache 2" in str(lower(s, args))
    assert "prefetcht1" in build(s, args, "llvm -mcpu=x86-64-v3").source("asm")
    assert s.trace.to_python().endswith("s['C'].prefetch('W', 'k', 4, level=2)\n")
    with pytest.raises(BadArgument, match="level must be 1 or 2 or 3, got 0"):
        s["C"].prefetch("W", "k", 4, level=0)


def test_copies_of_a_loop_prefetch_a_line_once() -> None:
    a = te.placeholder((8, 4), "int8", name="A")
    b = te.compute((8, 8), lambda i, j: a[i, j // 2], name="B")
    s = te.create_schedule(b.op)
    s[b].unroll("j")
    s[b].prefetch(a, "j", 1, along="i")
    assert str(lower(s, [a, b])).count("prefetch") == 4
    check_schedule(s, [a, b])


def test_what_lies_where_an_array_says_is_looked_up_inside_of_it() -> None:
    rows, table = te.placeholder((9, 16), name="rows"), te.placeholder((6,), "int32", name="table")
    b = te.compute((6, 16), lambda i, j: rows[te.max(te.min(table[i], 8), 0), j] * 2, name="B")
    s = te.create_schedule(b.op)
    s[b].prefetch(rows, "i", 2)
    assert "prefetch rows[int64(max(min(table[min(i + 2, 5)], 8), 0)), 0]" in str(lower(s, [rows, table, b]))
    places = np.array([8, 0, 3, 3, 1, 7], np.int32)
    given, out = np.arange(144, dtype=np.float32).reshape(9, 16), np.empty((6, 16), np.float32)
    build(s, [rows, table, b])(given, places, out)
    assert (out == given[places] * 2).all()


def test_an_array_that_is_computed_says_nothing_yet() -> None:
    rows, table = te.placeholder((9, 16), name="rows"), te.placeholder((6,), "int32", name="table")
    next_ = te.compute((6,), lambda i: te.max(te.min(table[i] + 1, 8), 0), name="next")
    b = te.compute((6, 16), lambda i, j: rows[next_[i], j] * 2, name="B")
    s = te.create_schedule(b.op)
    s[b].prefetch(rows, "i", 2)
    assert "for rows.p0 in range(9):" in str(lower(s, [rows, table, b]))  # any of them


def test_a_hybrid_stage_prefetches_where_it_runs() -> None:
    @te.hybrid.script
    def triangle(a: Any, n: Any) -> Any:
        out = output_tensor((n,), "float32")  # type: ignore[name-defined]  # noqa: F821
        for i in range(n):
            out[i] = 0.0
            for j in range(i):
                out[i] += a[i, j]
        return out

    n = te.var("n")
    a = te.placeholder((n, n), name="A")
    t = triangle(a, n)
    s = te.create_schedule(t.op)
    s[t].prefetch(a, "j", 1)
    text = str(lower(s, [a, t]))
    assert "for j in range(i):\n      prefetch A[i, j + 1]" in text
    for size in (0, 1, 6):
        check_schedule(s, [a, t], sizes={"n": size})


def test_an_array_that_is_computed_outside_of_the_loop() -> None:
    s, args = chain()
    i_o, i_i = s["C"].split("i", factor=16)
    j_o, _ = s["C"].split(i_i, factor=4)
    s["B"].compute_at(s["C"], i_o)
    s["C"].prefetch("B", j_o, 1)
    check_schedule(s, args)


def tiled(rows: Any = 20) -> tuple[Schedule, list[te.Tensor]]:
    """Tiles of columns, and in each all tiles of rows, which sum four terms in a turn."""
    s, args = product(rows)
    i_o, j_o, i_i, j_i = s["C"].tile("i", "j", 4, 16)
    k_o, k_i = s["C"].split("k", factor=4)
    s["C"].reorder(j_o, i_o, k_o, k_i, i_i, j_i)
    return s, args


def test_along_an_outer_loop() -> None:
    s, args = tiled()
    s["C"].prefetch("W", "k_i", 2, along="j_o")
    assert "prefetch W[4 * k_o + k_i, 16 * j_o + 32]" in str(lower(s, args))
    check_schedule(s, args)


def test_iterations_share_what_they_all_read() -> None:
    s, args = tiled()
    s["C"].prefetch("W", "k_o", 2, along="j_o", shared="i_o")
    assert "prefetch W[4 * k_o + i_o, 16 * j_o + 32]" in str(lower(s, args))  # five tiles share four rows
    check_schedule(s, args)
    assert s.trace.to_python().endswith("s['C'].prefetch('W', 'k_o', 2, along='j_o', shared='i_o')\n")


def test_a_few_iterations_share_more() -> None:
    s, args = tiled(8)
    s["C"].prefetch("W", "k_o", 1, along="j_o", shared="i_o")
    assert "for W.p0 in range(2):" in (text := str(lower(s, args)))
    assert "prefetch W[4 * k_o + 2 * i_o + W.p0, 16 * j_o + 16]" in text
    check_schedule(s, args)


def test_loops_of_the_host_can_be_named() -> None:
    s, args = product()
    local = s.cache_write("C", "local")
    i_o, i_i = s["C"].split("i", factor=4)
    s["C"].reorder("j", i_o, i_i)
    s[local].compute_at(s["C"], i_o)
    k = s[local].op.reduce_axis[0]
    s[local].prefetch("W", k, 8, along="j", shared=i_o)
    assert "prefetch W[k, j + 8]" in str(lower(s, args))  # one element: nothing to share out
    check_schedule(s, args)


def test_refusals_of_other_loops() -> None:
    s, args = tiled(te.var("n"))
    with pytest.raises(BadArgument, match="C prefetches in its loop k_o, which is not inside j_i"):
        s["C"].prefetch("W", "k_o", 1, along="j_i")
    with pytest.raises(BadArgument, match=r"the iterations of .*j_o do not read the same of W in C: nothing to share"):
        s["C"].prefetch("W", "k_o", 1, shared="j_o")
    with pytest.raises(BadArgument, match="sharing out a prefetch of W needs known sizes"):
        s["C"].prefetch("W", "k_o", 1, along="j_o", shared="i_o")
    s["C"].prefetch("W", "k_o", 1, along="j_o")
    with pytest.raises(BadArgument, match="axis j_o of C has a prefetch; transform the axis before"):
        s["C"].split("j_o", factor=2)
    check_schedule(s, args, sizes={"n": 7})


def test_refusals() -> None:
    s, _ = chain()
    with pytest.raises(BadArgument, match="C does not read A; there are B"):
        s["C"].prefetch("A", "i", 1)
    with pytest.raises(BadArgument, match="no tensor 'Q'"):
        s["C"].prefetch("Q", "i", 1)
    with pytest.raises(BadArgument, match="no axis 'k' in C"):
        s["C"].prefetch("B", "k", 1)
    with pytest.raises(BadArgument, match=r"offset must be a whole number, got 1\.5"):
        s["C"].prefetch("B", "i", 1.5)  # type: ignore[arg-type]
    s["B"].compute_at(s["C"], "i")
    with pytest.raises(BadArgument, match="B is computed inside the loop i of C: there is nothing to prefetch yet"):
        s["C"].prefetch("B", "i", 1)


def test_later_steps_keep_what_it_needs() -> None:
    s, args = chain()
    s["C"].prefetch("B", "i", 1)
    with pytest.raises(BadArgument, match="axis i of C has a prefetch; transform the axis before"):
        s["C"].split("i", factor=4)
    with pytest.raises(BadArgument, match="B is computed inside the loop i of C"):
        s["B"].compute_at(s["C"], "i")
    with pytest.raises(BadArgument, match="C does not read B in its loop i"):
        s.cache_read("B", "local", ["C"])
    with pytest.raises(BadArgument, match="C prefetches B, which would be no array any more"):
        s["B"].compute_inline()
    check_schedule(s, args)


def test_it_replays() -> None:
    s, args = product()
    s["C"].prefetch(args[0], "i", 2)
    again = product()[0]
    Trace.from_json(s.trace.to_json()).apply(again)
    assert str(lower(again, args)) == str(lower(s, args))
    assert s.trace.to_python() == "s['C'].prefetch('A', 'i', 2)\n"
