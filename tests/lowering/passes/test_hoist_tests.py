"""Tests move out of loops, and join."""

from __future__ import annotations

from tensorlang.ir.construct import array, indices, kernel, load, loop, store
from tensorlang.ir.expr import binary
from tensorlang.ir.printer import stmt_text
from tensorlang.ir.simplify import simplify_kernel
from tensorlang.ir.stmt import Fail, If, LoopKind, Prefetch, Seq, Stmt
from tensorlang.lowering.passes.hoist_tests import hoist_tests
from tensorlang.lowering.passes.unroll import unroll, unroll_tails
from tensorlang.lowering.passes.vector_tails import vector_tails

i, j, k, n = indices("i j k n")
A, C = array("A", (n,)), array("C", (n, n))
ONE, TWO = store(A, i, 1.0), store(A, i, 2.0)


def hoisted(body: Stmt) -> str:
    return stmt_text(hoist_tests(kernel("k", [A, C], "A C", body, [n])).body)


def test_a_test_leaves_the_loops_that_do_not_change_it() -> None:
    nest = loop(i, 0, n, loop(j, 0, n, loop(k, 0, n, If(j < 3, ONE, TWO))))
    assert hoisted(nest) == (
        "for i in range(n):\n"
        "  for j in range(n):\n"
        "    if j < 3:\n"
        "      for k in range(n):\n"
        "        A[i] = 1.0\n"
        "    else:\n"
        "      for k in range(n):\n"
        "        A[i] = 2.0"
    )


def test_tests_in_a_row_become_one() -> None:
    body = Seq((If(n > 3, ONE), If(n > 3, TWO, Fail("short")), If(n > 4, ONE)))
    assert hoisted(loop(i, 0, n, body)) == (
        "for i in range(n):\n"
        "  if n > 3:\n"
        "    A[i] = 1.0\n"
        "    A[i] = 2.0\n"
        "  else:\n"
        "    fail 'short'\n"
        "  if n > 4:\n"
        "    A[i] = 1.0"
    )


def test_joined_tests_leave_as_well() -> None:
    body = loop(i, 0, n, Seq((If(n > 3, ONE), If(n > 3, TWO))))
    assert hoisted(body).startswith("if n > 3:\n  for i in range(n):")


def test_tests_of_memory_stay() -> None:
    test = If(load(A, 0) > 0.0, ONE)
    body = loop(i, 0, n, Seq((test, test)))
    assert hoisted(body) == stmt_text(body)


def test_prefetches_do_not_hold_a_test_back() -> None:
    ahead = loop(k, 0, 2, Prefetch(A, (i + 8 * k,)))
    assert hoisted(loop(i, 0, n, Seq((ahead, If(n > 3, ONE))))) == (
        "if n > 3:\n"
        "  for i in range(n):\n"
        "    for k in range(2):\n"
        "      prefetch A[i + 8 * k]\n"
        "    A[i] = 1.0\n"
        "else:\n"
        "  for i in range(n):\n"
        "    for k in range(2):\n"
        "      prefetch A[i + 8 * k]"
    )


def test_parallel_loops_are_not_doubled() -> None:
    body = loop(i, 0, n, If(n > 3, ONE, TWO), LoopKind.PARALLEL)
    assert hoisted(body) == stmt_text(body)


def test_a_register_tile_with_guarded_tails(golden) -> None:  # type: ignore[no-untyped-def]
    io, jo = indices("io jo")
    row, column = 2 * io + i, 8 * jo + j
    update = store(C, (row, column), load(C, row, column) + load(C, row, k) * load(C, k, column))
    tile = loop(j, 0, binary("min", 8, n - 8 * jo), update, LoopKind.VECTORIZED)
    tile = loop(i, 0, binary("min", 2, n - 2 * io), tile, LoopKind.UNROLLED)
    nest = loop(io, 0, (n + 1) // 2, loop(jo, 0, (n + 7) // 8, loop(k, 0, n, tile)), LoopKind.PARALLEL)
    done = unroll_tails(vector_tails(simplify_kernel(kernel("k", [C], "C", nest, [n]))))
    golden(stmt_text(simplify_kernel(unroll(hoist_tests(done))).body))
