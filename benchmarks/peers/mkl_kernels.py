"""Make the MKL inside a library use its fast kernels on every CPU.

It asks for the maker of the CPU, and takes slow kernels on any but its own. A small library that answers in its place,
loaded first, is built here where there is a C compiler; without one, the figures are those of the slow kernels.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path

ANSWER = "int mkl_serv_intel_cpu_true(void) { return 1; }\n"


def enable() -> None:
    """Load the answer; call it before the library is imported."""
    with tempfile.TemporaryDirectory() as name:
        source, library = Path(name, "answer.c"), Path(name, "answer.so")
        source.write_text(ANSWER, encoding="utf-8")
        try:
            subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            return
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
