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

I, J, K, N = indices("i j k n")
A = array("A", (N,))
B = array("B", (64, 64))
VECTORIZED, UNROLLED, PARALLEL = LoopKind.VECTORIZED, LoopKind.UNROLLED, LoopKind.PARALLEL
SET = store(A, J, 1.0)


def least(*parts: Expr | int) -> Expr:
    first, *rest = parts
    for part in rest:
        first = binary("min", first, part)
    assert isinstance(first, Expr)
    return first


def legal(body: Stmt, extents: Mapping[str, int] | None = None) -> Kernel:
    done = simplify_kernel(vector_tails(simplify_kernel(kernel("k", [A, B], "A B", body, [N])), extents))
    verify(done)
    return done


def text(body: Stmt, extents: Mapping[str, int] | None = None) -> str:
    return stmt_text(legal(body, extents).body)


def kinds(body: Stmt) -> list[str]:
    return [s.kind.value for s in walk(legal(body).body) if isinstance(s, For)]


def test_full_tiles_stay() -> None:
    assert text(loop(J, 0, 32, SET, VECTORIZED)) == "vectorized j in range(32):\n  A[j] = 1.0"


def test_a_tile_cut_by_a_size(golden) -> None:  # type: ignore[no-untyped-def]
    golden(text(loop(I, 0, (N + 31) // 32, loop(J, 32 * I, least(32 * I + 32, N), SET, VECTORIZED))))


def test_a_tile_cut_from_zero(golden) -> None:  # type: ignore[no-untyped-def]
    body = store(A, 32 * I + J, 1.0)
    golden(text(loop(I, 0, (N + 31) // 32, loop(J, 0, least(32, N - 32 * I), body, VECTORIZED))))


def test_a_tile_cut_on_both_sides(golden) -> None:  # type: ignore[no-untyped-def]
    lower = binary("max", 8 * I, 3)
    golden(text(loop(I, 0, (N + 7) // 8, loop(J, lower, least(8 * I + 8, N), SET, VECTORIZED))))


def test_a_tile_cut_by_a_constant(golden) -> None:  # type: ignore[no-untyped-def]
    golden(text(loop(I, 0, 4, loop(J, 16 * I, least(16 * I + 16, 50), store(B, (0, J), 1.0), VECTORIZED))))


def test_a_guard_over_the_lanes(golden) -> None:  # type: ignore[no-untyped-def]
    body = If(binary("and", 32 * I + J < N, N > 5), store(A, 32 * I + J, 1.0))
    golden(text(loop(I, 0, (N + 31) // 32, loop(J, 0, 32, body, VECTORIZED))))


def test_the_lane_that_is_worst_off_decides() -> None:
    rising = text(loop(I, 0, N, loop(J, 0, 8, If(J < I, SET), VECTORIZED)))
    assert "if i > 7:" in rising
    falling = text(loop(I, 0, N, loop(J, 0, 8, If(J > I - 6, SET), VECTORIZED)))
    assert "if i < 6:" in falling
    turned = text(loop(I, 0, N, loop(J, 0, 8, If(I - 8 * J > 3, SET), VECTORIZED)))
    assert "if i > 59:" in turned


def test_guards_inside_a_uniform_loop(golden) -> None:  # type: ignore[no-untyped-def]
    update = store(B, (K, J), load(B, K, J) + 1.0)
    golden(text(loop(J, 0, 16, loop(K, 0, 3, If(J + 3 < N, update, Fail("late")), UNROLLED), VECTORIZED)))


def test_a_guard_on_an_inner_variable_stays() -> None:
    body = loop(J, 0, 16, loop(K, 0, 3, If(J + K < N, SET)), VECTORIZED)
    assert text(body).startswith("vectorized j in range(16):\n  for k in range(3):\n    if j + k < n:")


def test_a_guard_that_is_not_affine_stays() -> None:
    assert "if j % 2 < 1:" in text(loop(J, 0, 16, If(binary("lt", J % 2, 1), SET), VECTORIZED))
    assert "if A[j] > 0.0:" in text(loop(J, 0, 16, If(load(A, J) > 0.0, SET), VECTORIZED))


def test_unknown_extents_become_serial() -> None:
    assert text(loop(J, 0, N, SET, VECTORIZED)) == "for j in range(n):\n  A[j] = 1.0"
    assert "vectorized" not in text(loop(J, 0, least(N, N // 2 + 3), SET, VECTORIZED))


def test_extents_of_axes_help(golden) -> None:  # type: ignore[no-untyped-def]
    golden(text(loop(J, N // 2, N // 3 + N // 2, SET, VECTORIZED, axis="x"), {"x": 16}))


def test_one_lane_vanishes() -> None:
    assert text(loop(I, 0, N, loop(J, I, I + 1, SET, VECTORIZED))) == "for i in range(n):\n  A[i] = 1.0"


def test_loops_inside_lanes() -> None:
    inner = loop(K, 0, 4, store(B, (J, K), 1.0), VECTORIZED)
    assert kinds(loop(J, 0, 8, inner, VECTORIZED)) == ["serial", "vectorized"]
    assert kinds(loop(J, 0, 8, loop(K, 0, 4, store(B, (J, K), 1.0), PARALLEL), VECTORIZED)) == ["serial", "parallel"]
    assert kinds(loop(J, 0, 8, loop(K, 0, 4, store(B, (J, K), 1.0)), VECTORIZED)) == ["vectorized", "serial"]
    assert kinds(loop(J, 0, 8, loop(K, 0, J, store(B, (J, K), 1.0)), VECTORIZED)) == ["serial", "serial"]


def test_private_scratch_needs_serial_lanes() -> None:
    scratch = array("S", (1,), scope="local")
    body = Allocate(scratch, store(scratch, 0, 1.0))
    assert kinds(loop(J, 0, 8, body, VECTORIZED)) == ["serial"]
