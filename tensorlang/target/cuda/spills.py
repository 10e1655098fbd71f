"""Kernels that spill although they need not: ptxas likes more blocks on a multiprocessor, and runs out of registers."""

from __future__ import annotations

import re

from tensorlang.target.cuda.nvrtc import Compiled, compile_cuda


def compile_without_spills(text: str, architecture: str) -> Compiled:
    """Compile CUDA text; where kernels spill, once more with as many registers for them as one block may have.

    Only what then spills less is taken. Raises as `compile_cuda` does.
    """
    code = compile_cuda(text, architecture)
    spilled = [kernel.name for kernel in code.report.kernels if kernel.spills]
    if not spilled:
        return code
    roomy = compile_cuda(_with_one_block(text, spilled), architecture)
    return roomy if _spills(roomy) < _spills(code) else code


def _with_one_block(text: str, kernels: list[str]) -> str:
    """The text with one block on a multiprocessor as enough for some kernels, where ptxas chose the number."""
    names = "|".join(map(re.escape, kernels))
    return re.sub(rf"__launch_bounds__\((\d+)\) (?=({names})\()", r"__launch_bounds__(\1, 1) ", text)


def _spills(code: Compiled) -> int:
    return sum(kernel.spills for kernel in code.report.kernels)
