"""The table of peers: how each is called, its program, the package that it needs, and how it is started."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
THREAD_SETTINGS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "HL_NUM_THREADS",
    "TVM_NUM_THREADS",
    "TENSORLANG_NUM_THREADS",
)
CORETYPES = ("", "SKYLAKEX", "ZEN", "HASWELL")
"""Kernels of OpenBLAS for x86-64; "": the ones it picks by itself, which are slow on some machines."""

_NOT_KEPT = ("OPENBLAS_CORETYPE", "PYTHONDONTWRITEBYTECODE")
"""Settings of this process alone; with the second one every start would compile all Python anew."""
TVM_TRIALS = int(os.environ.get("TVM_TRIALS", "0"))
"""Its peer reads this setting too."""


@dataclass(frozen=True, slots=True)
class Library:
    """A contestant: `key` names it on the command line, `needs` is the distributions that its interpreter must have."""

    key: str
    name: str
    module: str
    needs: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)

    def command(self, interpreter: str) -> list[str]:
        """The command of its process."""
        return [interpreter, "-m", "benchmarks.peers", self.module]

    def settings(self, threads: int) -> dict[str, str]:
        """The environment of its process."""
        kept = {name: value for name, value in os.environ.items() if name not in _NOT_KEPT}
        return {**kept, **dict.fromkeys(THREAD_SETTINGS, str(threads)), "PYTHONPATH": str(ROOT), **self.environment}

    def versions(self, interpreter: str) -> dict[str, str] | str:
        """The versions of its packages, or why it cannot run."""
        try:
            found = subprocess.run(
                [interpreter, "-c", _VERSIONS, *self.needs], capture_output=True, text=True, check=False
            )
        except OSError as error:
            return f"no interpreter {interpreter}: {error.strerror}"
        if found.returncode:
            return f"not installed: {', '.join(self.needs)}"
        return dict(zip(self.needs, found.stdout.split(), strict=True))


_VERSIONS = """
import sys
from importlib.metadata import version
print(*map(version, sys.argv[1:]))
"""


def numpy(coretype: str = "") -> Library:
    """NumPy with a kernel of its OpenBLAS."""
    name = f"NumPy ({coretype})" if coretype else "NumPy"
    environment = {"OPENBLAS_CORETYPE": coretype} if coretype else {}
    return replace(NUMPY, name=name, environment=environment)


OWN = Library("tensorlang", "tensorlang", "benchmarks.own", (), {"TENSORLANG_CACHE": "0"})
"""Without its cache of kernels, so that the time to build one is seen."""
NUMPY = Library("numpy", "NumPy", "benchmarks.peers.numpy_arrays", ("numpy",))
LIBRARIES = (
    NUMPY,
    Library("torch", "PyTorch", "benchmarks.peers.torch_eager", ("torch",)),
    Library("torch-compiled", "PyTorch compiled", "benchmarks.peers.torch_compiled", ("torch",)),
    Library("onnxruntime", "onnxruntime", "benchmarks.peers.onnx_runtime", ("onnxruntime", "onnx")),
    Library("openvino", "OpenVINO", "benchmarks.peers.openvino_models", ("openvino", "onnx")),
    Library("jax", "JAX", "benchmarks.peers.jax_functions", ("jax",)),
    Library("numba", "Numba", "benchmarks.peers.numba_loops", ("numba",)),
    Library("halide", "Halide", "benchmarks.peers.halide_pipelines", ("halide",)),
    Library("iree", "IREE", "benchmarks.peers.iree_modules", ("iree-base-compiler", "iree-base-runtime", "onnx")),
    Library(
        "tvm",
        f"TVM, {TVM_TRIALS} trials" if TVM_TRIALS else "TVM untuned",
        "benchmarks.peers.tvm_modules",
        ("apache-tvm", "onnx"),
    ),
)
BY_KEY = {library.key: library for library in LIBRARIES}


def interpreters(given: Mapping[str, str]) -> dict[str, str]:
    """The interpreter of every peer: as given, one for PyTorch serving both, or the one that runs this."""
    found = dict.fromkeys(BY_KEY, sys.executable)
    found.update(given)
    if "torch" in given and "torch-compiled" not in given:
        found["torch-compiled"] = given["torch"]
    return found
