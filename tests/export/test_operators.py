"""Operators of every family, exported and run by the C program that tests them; by night all, by every linker."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import tensorlang
from tensorlang.export.linking import LINKERS
from tests.export.library import cases, operator

CC = shutil.which("cc")
CHECKED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


@pytest.mark.skipif(CC is None, reason="needs a C compiler")
@pytest.mark.parametrize(("name", "dtype"), cases(4))
def test_operators_run_from_c(name: str, dtype: str, tmp_path: Path) -> None:
    kernel, arrays = operator(name, dtype)
    kernel.export(tmp_path / "kernel", formats=("c",), check=arrays)
    strict = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-g", *CHECKED]
    command = [str(CC), *strict, "kernel_test.c", "kernel.a", "-lm", "-o", "kernel_test"]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "kernel_test", tmp_path, "0"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "kernel: as expected\n"), done.stderr


@pytest.mark.parametrize("linker", list(LINKERS))
@pytest.mark.parametrize(("name", "dtype"), cases(1))
def test_operators_are_the_same_by_every_linker(name: str, dtype: str, linker: str, tmp_path: Path) -> None:
    if LINKERS[linker]() is None:
        pytest.skip(f"needs {linker}")
    kernel, arrays = operator(name, dtype)
    others = [a.copy() for a in arrays]
    kernel(*arrays)
    tensorlang.load(kernel.export(tmp_path / "kernel", formats=("so",), linker=linker).files["so"])(*others)
    for one, other in zip(arrays, others, strict=True):
        assert one.tobytes() == other.tobytes()
