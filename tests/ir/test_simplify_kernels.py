"""Random kernels do the same before and after the simplifier, and stay well formed."""

from __future__ import annotations

from hypothesis import given, note, settings

from tensorlang.ir.printer import kernel_text
from tensorlang.ir.simplify import simplify_kernel
from tensorlang.ir.stmt import Kernel
from tensorlang.ir.verify import verify
from tensorlang.testing.loop_ir import kernels, trace


@settings(max_examples=2 * settings().max_examples)
@given(kernels())
def test_simplified_kernels_do_the_same(kernel: Kernel) -> None:
    simple = simplify_kernel(kernel)
    note(f"{kernel_text(kernel)}\n->\n{kernel_text(simple)}")
    verify(kernel, lanes=False)
    verify(simple, lanes=False)
    for n in (0, 1, 5, 8):
        assert trace(kernel, n) == trace(simple, n)
