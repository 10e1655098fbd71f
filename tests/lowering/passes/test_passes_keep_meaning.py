"""Random kernels do the same before and after the passes, and are legal for targets afterwards."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, note, settings
from hypothesis import strategies as st

from tensorlang.ir.loops import MOST_UNROLLED, UNROLL_EXPLICIT, with_body
from tensorlang.ir.printer import kernel_text
from tensorlang.ir.simplify import simplify_kernel
from tensorlang.ir.stmt import For, Kernel, Stmt, map_children
from tensorlang.ir.verify import verify
from tensorlang.lowering.passes.hoist_tests import hoist_tests
from tensorlang.lowering.passes.pragmas import unroll_as_asked
from tensorlang.lowering.passes.unfuse import unfuse
from tensorlang.lowering.passes.unroll import unroll, unroll_bounds, unroll_tails
from tensorlang.lowering.passes.vector_tails import vector_tails
from tensorlang.testing.loop_ir import kernels, trace


@given(kernels())
def test_unroll(kernel: Kernel) -> None:
    unrolled = unroll(kernel, most_stores=8)
    note(f"{kernel_text(kernel)}\n->\n{kernel_text(unrolled)}")
    verify(unrolled, lanes=False)
    for n in (0, 1, 6):
        assert trace(kernel, n) == trace(unrolled, n)


@given(kernels())
def test_unfuse(kernel: Kernel) -> None:
    split = unfuse(kernel)
    note(f"{kernel_text(kernel)}\n->\n{kernel_text(split)}")
    verify(split, lanes=False)
    for n in (0, 1, 6):
        assert trace(kernel, n) == trace(split, n)


@settings(max_examples=settings().max_examples)
@given(kernels())
def test_vector_tails(kernel: Kernel) -> None:
    simple = simplify_kernel(kernel)
    legal = vector_tails(simple)
    note(f"{kernel_text(kernel)}\n->\n{kernel_text(legal)}")
    verify(legal)
    for n in (0, 1, 6):
        assert trace(kernel, n) == trace(legal, n)


@settings(max_examples=settings().max_examples)
@given(kernels())
def test_hoist_tests(kernel: Kernel) -> None:
    hoisted = hoist_tests(kernel)
    note(f"{kernel_text(kernel)}\n->\n{kernel_text(hoisted)}")
    verify(hoisted, lanes=False)
    for n in (0, 1, 6):
        assert trace(kernel, n) == trace(hoisted, n)


def asked(stmt: Stmt, pragmas: tuple[tuple[str, int], ...]) -> Stmt:
    """The statement with pragmas on its outermost loops."""
    return replace(stmt, pragmas=pragmas) if isinstance(stmt, For) else map_children(stmt, lambda s: asked(s, pragmas))


@given(kernels(), st.integers(0, 30), st.integers(0, 1))
def test_unroll_as_asked(kernel: Kernel, most: int, here: int) -> None:
    wish = ((MOST_UNROLLED, most), (UNROLL_EXPLICIT, here))
    unrolled = unroll_as_asked(with_body(kernel, asked(kernel.body, wish)))
    note(f"{kernel_text(kernel)}\n->\n{kernel_text(unrolled)}")
    verify(unrolled, lanes=False)
    for n in (0, 1, 6):
        assert trace(kernel, n) == trace(unrolled, n)


@settings(max_examples=settings().max_examples)
@given(kernels())
def test_all_in_a_row(kernel: Kernel) -> None:
    done = unroll_tails(vector_tails(simplify_kernel(unroll_bounds(kernel))))
    verify(done)
    done = simplify_kernel(unroll(hoist_tests(done)))
    note(f"{kernel_text(kernel)}\n->\n{kernel_text(done)}")
    verify(done)
    for n in (0, 3, 8):
        assert trace(kernel, n) == trace(done, n)
