"""Compiling CUDA text for tests: each text once a session, for every architecture that matters."""

from __future__ import annotations

from functools import cache

import pytest

from tensorlang.target.cuda import nvrtc
from tensorlang.target.cuda.nvrtc import Compiled, compile_cuda
from tensorlang.target.cuda.report import Report

ARCHITECTURES = ("sm_80", "sm_90a")

needs_nvrtc = pytest.mark.skipif(not nvrtc.is_available(), reason="no NVRTC: pip install nvidia-cuda-nvrtc")


def check_compiles(text: str, archs: tuple[str, ...] = ARCHITECTURES) -> dict[str, Report]:
    """Compile a text for each architecture; the reports of its kernels by architecture.

    What NVRTC refuses is an error with its log. The test is skipped where there is no NVRTC.
    """
    return {arch: compiled(text, arch).report for arch in archs}


def compiled(text: str, arch: str) -> Compiled:
    """A text compiled for an architecture; the test is skipped where there is no NVRTC."""
    if not nvrtc.is_available():
        pytest.skip("no NVRTC: pip install nvidia-cuda-nvrtc")
    return _compiled(text, arch)


@cache
def _compiled(text: str, arch: str) -> Compiled:
    found = compile_cuda(text, arch)
    assert found.cubin.startswith(b"\x7fELF")
    assert found.names
    return found
