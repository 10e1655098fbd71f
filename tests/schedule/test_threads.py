"""Threads in the tree of loops: what threads compute together, what each has for itself, and which one runs what."""

from __future__ import annotations

from typing import Any

import pytest

from tensorlang import lower, te
from tensorlang.errors import BadArgument
from tensorlang.ir.expr import Const, Var, binary
from tensorlang.ir.stmt import INDEX, For, If, LoopKind, Seq
from tensorlang.polyhedral.nest import Leaf, Loop
from tensorlang.polyhedral.numbered import first_thread, numbered
from tensorlang.schedule.state import Attach
from tensorlang.testing.check import check_schedule
from tests.error.device_programs import rows
from tests.programs import chain, diamond

I = Var("i", INDEX)  # noqa: E741


def loop(lower: Any, upper: Any, thread: str = "threadIdx.x") -> Loop:
    first, end = (Const(e, INDEX) if isinstance(e, int) else e for e in (lower, upper))
    return Loop("S.i", "i", "S", first, end, LoopKind.BOUND, thread, (), Leaf(0))


@pytest.mark.parametrize(
    ("lower", "upper", "first"),
    [(0, 8, 0), (3, 8, 0), (-2, 6, -2), (1000, 1030, 1000), (0, Var("n", INDEX), 0), (Var("n", INDEX), 9, None)],
)
def test_the_first_thread_of_a_loop(lower: Any, upper: Any, first: int | None) -> None:
    assert first_thread(loop(lower, upper)) == first


def test_tighter_bounds_of_a_part_become_tests() -> None:
    n = Var("n", INDEX)
    part = For(I, binary("max", n, 0), binary("min", 8, n + 4), LoopKind.BOUND, Seq(()), "i", "threadIdx.x")
    made = numbered(loop(0, 8), part)
    assert (str(made.lower), str(made.upper)) == ("0", "8")
    assert isinstance(made.body, If) and str(made.body.cond) == "i >= n"
    assert isinstance(made.body.then, If) and str(made.body.then.cond) == "i < n + 4"


def in_blocks(s: Any, stage: str, first: str, then: str, tile: int = 4) -> None:
    s[stage].tile(first, then, tile, tile)
    tags = ("blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x")
    for axis, tag in zip((f"{first}_o", f"{then}_o", f"{first}_i", f"{then}_i"), tags, strict=True):
        s[stage].bind(axis, tag)


def test_threads_of_a_block_compute_a_shared_stage_together() -> None:
    s, args = rows(10, 9)
    in_blocks(s, "C", "i", "j")
    s["B"].compute_at(s["C"], "j_i")
    s["B"].set_scope("shared")
    s["B"].bind("i", "threadIdx.y")
    s["B"].bind("j", "threadIdx.x")
    text = str(lower(s, args, target="interpreter"))
    assert "allocate B: float32[4, 5] in shared" in text and text.count("barrier of the block") == 1
    check_schedule(s, args, targets=("interpreter",))


def test_each_thread_computes_what_is_its_own() -> None:
    s, args = rows(10, 9)
    in_blocks(s, "C", "i", "j")
    s["B"].compute_at(s["C"], "j_i")
    text = str(lower(s, args, target="interpreter"))
    assert "allocate B: float32[1, 2] in local" in text and "barrier" not in text
    check_schedule(s, args, targets=("interpreter",))


@pytest.mark.parametrize("extent", [3, 4, 5])
def test_a_block_alone_is_launched_once(extent: int) -> None:
    """Loops on blocks of one iteration tell the device from the host, too."""
    s, args = rows(extent, 4)
    in_blocks(s, "C", "i", "j")
    s["B"].compute_at(s["C"], "j_o")
    s["B"].set_scope("shared")
    text = str(lower(s, args, target="cuda"))
    assert text.count("launch ") == 1 and "allocate B" in text and "for " not in text.split("device kernel")[0]
    check_schedule(s, args, targets=("interpreter",))


def test_no_part_of_a_loop_on_blocks_is_peeled() -> None:
    s, args = chain(50)
    s["B"].compute_inline()
    s["C"].split("i", 16, tail="peel")
    s["C"].split("i_o", 3, tail="peel")
    s["C"].bind("i_o_i", "blockIdx.x")
    s["C"].bind("i_i", "threadIdx.x")
    s["C"].bind("i_o_o", "blockIdx.y")
    text = str(lower(s, args, target="cuda"))
    assert text.count("launch ") == 1 and "on [3, 2, 1] blocks of [16, 1, 1] threads" in text
    check_schedule(s, args, targets=("interpreter",))


@pytest.mark.parametrize("order", ["DCB", "BDC"])
def test_a_stage_waits_until_all_of_its_readers_are_there(order: str) -> None:
    case = diamond()
    s = case.s
    s["E"].bind("i", "blockIdx.x")
    for stage in order:
        s[stage].compute_at(s["E"], "i")
    assert all(s.state.stages[name].attach is not None for name in "BCD")
    check_schedule(s, case.args, targets=("interpreter",))


@pytest.mark.parametrize("inlined", [False, True])
def test_a_stage_that_its_place_reads_waits_for_the_other_reader(inlined: bool) -> None:
    A = te.placeholder((42,), name="A")
    B = te.compute((42,), lambda i: A[i] * 2, name="B")
    C = te.compute((40,), lambda i: B[i] + B[i + 2], name="C")
    D = te.compute((40,), lambda i: B[i + 1] * C[i], name="D")
    s = te.create_schedule(D.op)
    i_o, i_i = s[D].split("i", 8)
    s[D].bind(i_o, "blockIdx.x")
    s[D].bind(i_i, "threadIdx.x")
    s[B].compute_at(s[D], i_o)
    with pytest.raises(BadArgument, match="B is to be computed at i_o of D, but C, which reads it, is not computed"):
        lower(s, [A, D], target="cuda")
    if inlined:
        s[C].compute_inline()
    else:
        s[C].compute_at(s[D], i_o)
    assert s.state.stages["B"].attach == Attach("D", "i_o")
    check_schedule(s, (A, D), targets=("interpreter",))


def test_a_copy_of_a_padded_layout_leaves_out_what_nobody_made() -> None:
    A = te.placeholder((50,), name="A")
    B = te.compute((50,), lambda i: A[i] * 2, name="B")
    C = te.compute((50,), lambda i: B[i] + 1, name="C")
    s = te.create_schedule(C.op)
    s[B].transform_layout(lambda i: (i // 16, i % 16))
    s[B].bind("p0", "blockIdx.x")
    s[B].bind("p1", "threadIdx.x")
    held = s.cache_read(B, "shared", [C])
    i_o, i_i = s[C].split("i", 16)
    s[C].bind(i_o, "blockIdx.x")
    s[C].bind(i_i, "threadIdx.x")
    s[held].compute_at(s[C], i_o)
    s[held].bind("ax1", "threadIdx.x")
    check_schedule(s, (A, C), targets=("interpreter",))


def test_threads_that_begin_elsewhere_find_what_others_have_written() -> None:
    A = te.placeholder((12,), name="A")
    B = te.compute((12,), lambda i: A[i] * 2, name="B")
    C = te.compute((12,), lambda i: B[11 - i] + 1, name="C")
    s = te.create_schedule(C.op)
    s[C].split("i", 12)
    s[C].bind("i_o", "blockIdx.x")
    s[C].bind(s[C].shift("i_i", -5), "threadIdx.x")
    s[B].compute_at(s[C], "i_o")
    s[B].set_scope("shared")
    s[B].bind(s[B].shift("i", 3), "threadIdx.x")
    check_schedule(s, (A, C), targets=("interpreter",))
