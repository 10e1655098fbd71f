"""Unrolled loops that may be cut short: a whole one and a tested one, and nests of them in two versions."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, note
from hypothesis import strategies as st

from tensorlang.ir.construct import array, indices, kernel, load, loop, store
from tensorlang.ir.expr import Expr, Var, binary
from tensorlang.ir.printer import kernel_text, stmt_text
from tensorlang.ir.simplify import simplify_kernel
from tensorlang.ir.stmt import For, Kernel, LoopKind, Stmt
from tensorlang.ir.verify import verify
from tensorlang.lowering.passes.guard_tails import guard_tails
from tensorlang.testing.loop_ir import kernels, trace

i, j, n = indices("i j n")
notes, log = array("notes", (16,), "int32"), array("log", (2,), "int64")


def cut(var: Var, extent: int, bound: Expr, body: Stmt) -> For:
    return loop(var, 0, binary("min", extent, bound), body, LoopKind.UNROLLED)


def program(bounds: Sequence[Expr]) -> Kernel:
    """Each iteration that runs counts in a place of its own."""
    here = 4 * i + j
    nest = cut(i, 4, bounds[0], cut(j, 3, bounds[1], store(notes, here, load(notes, here) * 3 + 1)))
    return kernel("k", [log, notes], "log notes", nest, [n])


bound = st.sampled_from([n, n - 1, 3 - n, 2 * n - 4, n + i])


@given(st.tuples(st.sampled_from([n, n - 1, 3 - n]), bound))
def test_nests_run_what_they_ran(bounds: tuple[Expr, Expr]) -> None:
    given_kernel = program(bounds)
    guarded = guard_tails(simplify_kernel(given_kernel))
    note(f"{kernel_text(given_kernel)}\n->\n{kernel_text(guarded)}")
    for size in range(7):
        assert trace(given_kernel, size) == trace(guarded, size)


@given(kernels())
def test_any_kernel_does_what_it_did(given_kernel: Kernel) -> None:
    guarded = guard_tails(simplify_kernel(given_kernel))
    verify(guarded, lanes=False)
    for size in (0, 1, 6):
        assert trace(given_kernel, size) == trace(guarded, size)


def test_a_nest_has_two_versions() -> None:
    text = stmt_text(guard_tails(program([n, n - 1])).body)
    assert text.count("notes[4 * i + j] =") == 2
    assert text.splitlines()[0] == "if n >= 4 and n - 1 >= 3:"


def test_a_bound_by_the_loop_around_is_asked_inside_of_it() -> None:
    text = stmt_text(guard_tails(program([n, n + i])).body)
    assert text.count("notes[4 * i + j] =") == 4
    assert text.splitlines()[0] == "if n >= 4:"
