"""Vectorized loops with tails and guards become legal."""

from __future__ import annotations

from collections.abc import Mapping

from tensorlang.ir.construct import array, indices, kernel, load, loop, store
from tensorlang.ir.expr import Expr, binary
from tensorlang.ir.printer import stmt_text
from tensorlang.ir.simplify import simplify_kernel
from tensorlang.ir.stmt import Allocate, Fail, For, If, Kernel, LoopKind, Stmt, walk
from tensorlang.ir.verify import verify
from tensorlang.lowering.passes.vector_tails import vector_tails

i, j, k, n = indices("i j k n")
A = array("A", (n,))
B = array("B", (64, 64))
VECTORIZED, UNROLLED, PARALLEL = LoopKind.VECTORIZED, LoopKind.UNROLLED, LoopKind.PARALLEL
SET = store(A, j, 1.0)


def least(*parts: Expr | int) -> Expr:
    first, *rest = parts
    for part in rest:
        first = binary("min", first, part)
    assert isinstance(first, Expr)
    return first


def legal(body: Stmt, extents: Mapping[str, int] | None = None) -> Kernel:
    done = simplify_kernel(vector_tails(simplify_kernel(kernel("k", [A, B], "A B", body, [n])), extents))
    verify(done)
    return done


def text(body: Stmt, extents: Mapping[str, int] | None = None) -> str:
    return stmt_text(legal(body, extents).body)


def kinds(body: Stmt) -> list[str]:
    return [s.kind.value for s in walk(legal(body).body) if isinstance(s, For)]


def test_full_tiles_stay() -> None:
    assert text(loop(j, 0, 32, SET, VECTORIZED)) == "vectorized j in range(32):\n  A[j] = 1.0"


def test_a_tile_cut_by_a_size(golden) -> None:  # type: ignore[no-untyped-def]
    golden(text(loop(i, 0, (n + 31) // 32, loop(j, 32 * i, least(32 * i + 32, n), SET, VECTORIZED))))


def test_a_tile_cut_from_zero(golden) -> None:  # type: ignore[no-untyped-def]
    body = store(A, 32 * i + j, 1.0)
    golden(text(loop(i, 0, (n + 31) // 32, loop(j, 0, least(32, n - 32 * i), body, VECTORIZED))))


def test_a_tile_cut_on_both_sides(golden) -> None:  # type: ignore[no-untyped-def]
    lower = binary("max", 8 * i, 3)
    golden(text(loop(i, 0, (n + 7) // 8, loop(j, lower, least(8 * i + 8, n), SET, VECTORIZED))))


def test_a_tile_cut_by_a_constant(golden) -> None:  # type: ignore[no-untyped-def]
    golden(text(loop(i, 0, 4, loop(j, 16 * i, least(16 * i + 16, 50), store(B, (0, j), 1.0), VECTORIZED))))


def test_a_guard_over_the_lanes(golden) -> None:  # type: ignore[no-untyped-def]
    body = If(binary("and", 32 * i + j < n, n > 5), store(A, 32 * i + j, 1.0))
    golden(text(loop(i, 0, (n + 31) // 32, loop(j, 0, 32, body, VECTORIZED))))


def test_the_lane_that_is_worst_off_decides() -> None:
    rising = text(loop(i, 0, n, loop(j, 0, 8, If(j < i, SET), VECTORIZED)))
    assert "if i > 7:" in rising
    falling = text(loop(i, 0, n, loop(j, 0, 8, If(j > i - 6, SET), VECTORIZED)))
    assert "if i < 6:" in falling
    turned = text(loop(i, 0, n, loop(j, 0, 8, If(i - 8 * j > 3, SET), VECTORIZED)))
    assert "if i > 59:" in turned


def test_guards_inside_a_uniform_loop(golden) -> None:  # type: ignore[no-untyped-def]
    update = store(B, (k, j), load(B, k, j) + 1.0)
    golden(text(loop(j, 0, 16, loop(k, 0, 3, If(j + 3 < n, update, Fail("late")), UNROLLED), VECTORIZED)))


def test_a_guard_on_an_inner_variable_stays() -> None:
    body = loop(j, 0, 16, loop(k, 0, 3, If(j + k < n, SET)), VECTORIZED)
    assert text(body).startswith("vectorized j in range(16):\n  for k in range(3):\n    if j + k < n:")


def test_a_guard_that_is_not_affine_stays() -> None:
    assert "if j % 2 < 1:" in text(loop(j, 0, 16, If(binary("lt", j % 2, 1), SET), VECTORIZED))
    assert "if A[j] > 0.0:" in text(loop(j, 0, 16, If(load(A, j) > 0.0, SET), VECTORIZED))


def test_unknown_extents_stay_vectorized() -> None:
    assert text(loop(j, 0, n, SET, VECTORIZED)) == "vectorized j in range(n):\n  A[j] = 1.0"
    assert text(loop(j, 0, least(n, n // 2 + 3), SET, VECTORIZED)).startswith(
        "vectorized j in range(min(n, n // 2 + 3))"
    )


def test_extents_of_axes_help(golden) -> None:  # type: ignore[no-untyped-def]
    golden(text(loop(j, n // 2, n // 3 + n // 2, SET, VECTORIZED, axis="x"), {"x": 16}))


def test_one_lane_vanishes() -> None:
    assert text(loop(i, 0, n, loop(j, i, i + 1, SET, VECTORIZED))) == "for i in range(n):\n  A[i] = 1.0"


def test_loops_inside_lanes() -> None:
    inner = loop(k, 0, 4, store(B, (j, k), 1.0), VECTORIZED)
    assert kinds(loop(j, 0, 8, inner, VECTORIZED)) == ["serial", "vectorized"]
    assert kinds(loop(j, 0, 8, loop(k, 0, 4, store(B, (j, k), 1.0), PARALLEL), VECTORIZED)) == ["serial", "parallel"]
    assert kinds(loop(j, 0, 8, loop(k, 0, 4, store(B, (j, k), 1.0)), VECTORIZED)) == ["vectorized", "serial"]
    assert kinds(loop(j, 0, 8, loop(k, 0, j, store(B, (j, k), 1.0)), VECTORIZED)) == ["serial", "serial"]


def test_private_scratch_needs_serial_lanes() -> None:
    scratch = array("S", (1,), scope="local")
    body = Allocate(scratch, store(scratch, 0, 1.0))
    assert kinds(loop(j, 0, 8, body, VECTORIZED)) == ["serial"]
