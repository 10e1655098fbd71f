"""Random kernels leave the same behind when interpreted and when compiled."""

from __future__ import annotations

import numpy as np
from hypothesis import given, note, settings

from tensorlang.ir.printer import kernel_text
from tensorlang.ir.simplify import simplify_kernel
from tensorlang.ir.stmt import Kernel, LoopKind
from tensorlang.lowering.passes.unroll import unroll
from tensorlang.target import Target
from tensorlang.target.backend import backend
from tensorlang.testing.loop_ir import kernels, trace


@settings(max_examples=settings().max_examples // 2)
@given(kernels(kinds=(LoopKind.SERIAL, LoopKind.UNROLLED)))
def test_random_kernels(kernel: Kernel) -> None:
    kernel = unroll(simplify_kernel(kernel))
    note(kernel_text(kernel))
    compiled = backend("llvm").compile(kernel, Target("llvm"), (*kernel.params, *kernel.sizes))
    for n in (0, 6):
        log, notes = np.zeros(2, np.int64), np.arange(16, dtype=np.int32)
        compiled(log, notes, n)
        assert (*log.tolist(), *notes.tolist()) == trace(kernel, n)
