"""Unrolled loops become copies."""

from __future__ import annotations

from tensorlang.ir.construct import array, indices, kernel, load, loop, store
from tensorlang.ir.expr import binary, cast
from tensorlang.ir.printer import stmt_text
from tensorlang.ir.simplify import simplify_kernel
from tensorlang.ir.stmt import LoopKind, Seq, Stmt
from tensorlang.lowering.passes.unroll import MOST_STORES, unroll, unroll_bounds, unroll_tails

i, j, k, n = indices("i j k n")
C = array("C", (64, 64))
UNROLLED, VECTORIZED = LoopKind.UNROLLED, LoopKind.VECTORIZED


def unrolled(body: Stmt, most_stores: int = 256) -> str:
    return stmt_text(simplify_kernel(unroll(kernel("k", [C], "C", body, [n]), most_stores)).body)


def test_copies() -> None:
    body = loop(i, 2, 5, store(C, (i, 2 * i - 4), 1.0), UNROLLED)
    assert unrolled(body) == "C[2, 0] = 1.0\nC[3, 2] = 1.0\nC[4, 4] = 1.0"


def test_no_copy_is_lost_however_many_there_are() -> None:
    for count in (7, 8, 9, 16, 33, MOST_STORES):
        stored = unrolled(loop(i, 1, count + 1, store(C, (i, 0), 1.0), UNROLLED))
        assert stored.splitlines() == [f"C[{n}, 0] = 1.0" for n in range(1, count + 1)]


def test_bounds_may_move_with_outer_loops() -> None:
    body = loop(j, 0, 8, loop(i, 4 * j, 4 * j + 2, store(C, (i, j), 1.0), UNROLLED))
    assert unrolled(body) == "for j in range(8):\n  C[4 * j, j] = 1.0\n  C[4 * j + 1, j] = 1.0"


def test_a_bound_on_memory_is_read_once() -> None:
    starts = array("starts", (4,), "int32")
    first = cast(load(starts, 0), "int64")
    body = loop(i, first, first + 2, store(starts, i, 7), UNROLLED)
    text = stmt_text(unroll(kernel("k", [starts], "starts", body)).body)
    assert text == "let i = int64(starts[0])\nstarts[i] = 7\nstarts[i + 1] = 7"


def test_an_extent_that_is_not_constant_stays_a_loop() -> None:
    body = loop(i, 0, binary("min", 4, n), store(C, (i, 0), 1.0), UNROLLED)
    assert unrolled(body) == "for i in range(min(4, n)):\n  C[i, 0] = 1.0"


def test_inner_loops_first_outer_ones_while_the_limit_allows() -> None:
    body = loop(i, 0, 3, loop(j, 0, 2, store(C, (i, j), 1.0), UNROLLED), UNROLLED)
    assert unrolled(body, 5) == "for i in range(3):\n  C[i, 0] = 1.0\n  C[i, 1] = 1.0"
    assert unrolled(body, 6).count("C[") == 6
    assert unrolled(body, 1) == "for i in range(3):\n  for j in range(2):\n    C[i, j] = 1.0"


def test_register_tile(golden) -> None:  # type: ignore[no-untyped-def]
    update = store(C, (i, j), load(C, i, j) + load(C, i, k) * load(C, k, j))
    body = loop(k, 0, 64, loop(i, 0, 3, loop(j, 0, 32, update, VECTORIZED), UNROLLED))
    golden(unrolled(body))


def test_a_partial_tile_gets_a_loop_of_its_own(golden) -> None:  # type: ignore[no-untyped-def]
    tile = loop(i, 0, binary("min", 3, n - 3 * j), store(C, (3 * j + i, 0), 1.0), UNROLLED)
    made = simplify_kernel(kernel("k", [C], "C", loop(j, 0, (n + 2) // 3, tile), [n]))
    golden(stmt_text(simplify_kernel(unroll(unroll_tails(made))).body))


def test_copies_give_constant_bounds_to_the_loops_inside() -> None:
    """A window of three places over a row of eight in tiles of four: at each end one place cuts off a column."""
    tile = loop(
        i, binary("max", 0, 1 - 4 * j - k), binary("min", 4, 9 - 4 * j - k), store(C, (4 * j + i, k), 1.0), UNROLLED
    )
    window = loop(j, 0, 2, loop(k, 0, 3, tile, UNROLLED))
    made = simplify_kernel(unroll_bounds(kernel("k", [C], "C", window)))
    text = stmt_text(simplify_kernel(unroll(simplify_kernel(unroll_tails(made)))).body)
    assert "for i" not in text and "for k" not in text
    assert text.count("C[") == 4 + 3 + 4 + 4 + 3


def test_each_end_that_cuts_a_tile_has_a_test_of_its_own() -> None:
    """Of five tiles of four the first lacks a place and the last lacks two: all of them are copied."""
    tile = loop(i, binary("max", 0, 1 - 4 * j), binary("min", 4, 18 - 4 * j), store(C, (4 * j + i, 0), 1.0), UNROLLED)
    made = simplify_kernel(unroll_tails(simplify_kernel(kernel("k", [C], "C", loop(j, 0, 5, tile)))))
    text = stmt_text(simplify_kernel(unroll(made)).body)
    assert "for i" not in text
    assert text.count("C[") == 4 + 2 + 3


def test_bounds_that_would_make_too_many_copies_stay() -> None:
    body = loop(k, 0, 3, loop(i, k, 8, store(C, (i, k), 1.0), UNROLLED), UNROLLED)
    made = kernel("k", [C], "C", body)
    assert unroll_bounds(made, most_stores=2) == made
    assert unroll_bounds(made, most_stores=3) != made


def test_a_tile_over_the_limit_is_not_versioned() -> None:
    made = kernel("k", [C], "C", loop(i, 0, binary("min", 8, n), store(C, (i, 0), 1.0), UNROLLED), [n])
    assert unroll_tails(made, most_stores=7) == made
    assert unroll_tails(made, most_stores=8) != made


def test_no_iterations() -> None:
    assert unroll(kernel("k", [C], "C", loop(i, 4, 2, store(C, (i, i), 1.0), UNROLLED))).body == Seq(())
