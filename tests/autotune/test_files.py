"""Programs in files of users, as command lines name them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorlang import autotune
from tensorlang.autotune.files import load_function
from tensorlang.errors import DefinitionError

SOURCE = """
import tensorlang
from tensorlang import te, topi
from factors_of_{stem} import FACTOR


@tensorlang.kernel
def scaled(x, factor=FACTOR):
    return te.compute(x.shape, lambda *i: x[i] * factor, name="y")


@tensorlang.kernel(shapes={{"x": "n, 8"}})
def doubled(x):
    return te.compute(x.shape, lambda i, j: x[i, j] * 2, name="y")
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file that imports the one beside it."""
    stem = f"operators_{abs(hash(tmp_path))}"
    (tmp_path / f"factors_of_{stem}.py").write_text("FACTOR = 3\n")
    path = tmp_path / f"{stem}.py"
    path.write_text(SOURCE.format(stem=stem))
    return path


def test_functions_of_arrays_are_given_shapes(file: Path) -> None:
    """They import what lies beside them, and their programs are tasks of a tuner like any others."""
    x, y = load_function(f"{file}:scaled")("4x6:int8")
    assert (x.name, str(x.dtype), [str(n) for n in y.shape]) == ("x", "int8", ["4", "6"])
    task = autotune.create_task(f"{file}:scaled", ("16:float16", 2))
    assert [str(t.dtype) for t in task.tensors] == ["float16", "float16"]
    (x, y) = load_function(f"{file}:doubled")("5x8")
    assert [str(n) for n in x.shape] == ["n", "8"]


def test_what_is_no_shape_is_told(file: Path) -> None:
    with pytest.raises(DefinitionError, match="unknown dtype 'int7'"):
        load_function(f"{file}:scaled")("4x6:int7")
    with pytest.raises(DefinitionError, match="has no attribute 'shape'"):
        load_function(f"{file}:scaled")(4)
