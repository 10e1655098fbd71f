"""Operators of every family, exported and run by the C program that tests them; by night all, by every linker."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import dtypes
from tensorlang.export.linking import LINKERS
from tensorlang.runtime.executable import Executable
from tensorlang.te.operation import PlaceholderOp
from tensorlang.topi.table import OPERATORS
from tests.thoroughness import draws

CC = shutil.which("cc")
SIZES = {"N": 6, "M": 20, "K": 8, "C": 8, "H": 9, "W": 7, "O": 16, "Q": 2, "D": 16}
OWN = {
    "attention": (2, 8, 8, 16),
    "conv2d": (1, 4, 9, 8, 8, 3),
    "depthwise_conv2d": (1, 8, 9, 7, 3),
    "conv2d_int8": (1, 16, 6, 6, 16, 3),
    "conv2d_int8_packed": (1, 16, 6, 6, 16, 3),
    "pack_conv2d_int8": (16, 16, 3),
}
"""Sizes of operators whose sizes depend on each other."""
NARROW = ("relu", "add", "dense", "matmul", "softmax", "layer_norm", "sum", "transpose")
BY_DAY = [("conv2d", "float32"), ("matmul", "bfloat16"), ("softmax", "float16"), ("conv2d_int8", "int8")]
INTEGERS = ("conv2d_int8", "conv2d_int8_packed", "pack_conv2d_int8", "quantized_dense", "pack_narrow", "dense_narrow")
ALL = [(name, "int8" if name in INTEGERS else "float32") for name in OPERATORS]
ALL += [(name, dtype) for name in NARROW for dtype in ("float16", "bfloat16", "float64")]
CASES = BY_DAY if draws(0, 1) == 0 else ALL
CHECKED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def operator(name: str, dtype: str) -> tuple[Executable, list[Any]]:
    """The library's kernel for small arrays, and arrays for a call."""
    found = OPERATORS[name]
    tensors = found.tensors(OWN.get(name, tuple(SIZES[size] for size in found.sizes)), dtype)
    kernel: Executable = tensorlang.build(tensors, schedule="default", target="llvm -num-cores=2")
    rng = np.random.default_rng(6)
    arrays = []
    for tensor in tensors:
        shape, kind = tuple(int(str(e)) for e in tensor.shape), dtypes.info(tensor.dtype)
        if not isinstance(tensor.op, PlaceholderOp):
            arrays.append(np.zeros(shape, kind.numpy))
        elif kind.is_float:
            arrays.append(rng.uniform(0.2, 1.5, shape).astype(kind.numpy))
        else:
            arrays.append(rng.integers(0, 4, shape).astype(kind.numpy))
    return kernel, arrays


@pytest.mark.skipif(CC is None, reason="needs a C compiler")
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_operators_run_from_c(name: str, dtype: str, tmp_path: Path) -> None:
    kernel, arrays = operator(name, dtype)
    kernel.export(tmp_path / "kernel", formats=("c",), check=arrays)
    strict = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-g", *CHECKED]
    command = [str(CC), *strict, "kernel_test.c", "kernel.a", "-lm", "-o", "kernel_test"]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "kernel_test", tmp_path, "0"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "kernel: as expected\n"), done.stderr


@pytest.mark.parametrize("linker", list(LINKERS))
@pytest.mark.parametrize(("name", "dtype"), CASES if draws(0, 1) else CASES[:1])
def test_operators_are_the_same_by_every_linker(name: str, dtype: str, linker: str, tmp_path: Path) -> None:
    if LINKERS[linker]() is None:
        pytest.skip(f"needs {linker}")
    kernel, arrays = operator(name, dtype)
    others = [a.copy() for a in arrays]
    kernel(*arrays)
    tensorlang.load(kernel.export(tmp_path / "kernel", formats=("so",), linker=linker).files["so"])(*others)
    for one, other in zip(arrays, others, strict=True):
        assert one.tobytes() == other.tobytes()
