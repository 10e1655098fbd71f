"""Kernels as modules of classic te's runtime: written, loaded, and called by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tensorlang as tvm
from tensorlang import te
from tensorlang.errors import TargetError
from tensorlang.runtime.executable import Executable


@pytest.fixture(scope="module")
def kernel() -> Executable:
    """Adds one to eight numbers."""
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1, name="B")
    made = tvm.build(te.create_schedule(B.op), [A, B], "llvm", name="plus_one")
    assert isinstance(made, Executable)
    return made


def test_a_library_is_loaded_again(kernel: Executable, tmp_path: Path) -> None:
    path = tmp_path / "deploy-lib.so"
    kernel.export_library(str(path))
    loaded = tvm.runtime.load_module(str(path))
    for function in (loaded, loaded["plus_one"], loaded.entry_func, loaded.get_function("plus_one")):
        made = np.zeros(8, np.float32)
        function(np.arange(8, dtype=np.float32), made)
        assert made.tolist() == list(range(1, 9))
    assert isinstance(loaded, tvm.runtime.Module) and loaded.type_key == "llvm"
    with pytest.raises(KeyError, match="this executable holds 'plus_one'"):
        loaded.get_function("main")


def test_a_kernel_without_a_name_is_main(kernel: Executable, tmp_path: Path) -> None:
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] * 2, name="B")
    tvm.build(te.create_schedule(B.op), [A, B], "llvm").export_library(tmp_path / "lib.so")
    made = np.zeros(8, np.float32)
    tvm.runtime.load_module(tmp_path / "lib.so")["main"](np.ones(8, np.float32), made)
    assert made.tolist() == [2] * 8
    with pytest.raises(KeyError):
        kernel["main"]


def test_texts_and_objects(kernel: Executable, tmp_path: Path) -> None:
    for name, part in (("k.ll", b"define"), ("k.s", b"plus_one"), ("k.o", b"plus_one")):
        kernel.save(tmp_path / name)
        assert part in (tmp_path / name).read_bytes()
    with pytest.raises(TargetError, match=r"export_library writes \.so, \.o, \.a, got k\.tar"):
        kernel.export_library(tmp_path / "k.tar")
