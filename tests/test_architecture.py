"""The house rules that no linter checks: sizes, names, docstrings, and the one importer of each heavy package."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "tensorlang"
FOLDERS = ("tensorlang", "tests", "benchmarks", "tutorials", "examples", "docs")
LONGEST_FILE = 600
LONGEST_FUNCTION = 60
UNCLEAR = {"utils", "util", "helpers", "helper", "misc", "common", "base", "manager"}
IMPORTERS = {
    "islpy": {"polyhedral/isl.py"},
    "llvmlite": {"target/llvm/engine.py"},
    "pyopencl": {"target/opencl/runtime.py"},
    "xgboost": {"autotune/model/xgb_model.py"},
    "cupy": {"target/cuda/runtime.py"},
}
"""Packages that one file alone may import."""


def sources() -> Iterator[Path]:
    """All Python files of the project."""
    for folder in FOLDERS:
        yield from sorted((ROOT / folder).rglob("*.py"))


@dataclass(frozen=True, slots=True)
class Facts:
    """What is asked of a file: if it says what it is, the lines of its functions, and packages that it imports."""

    documented: bool
    functions: tuple[tuple[str, int], ...]
    imported: frozenset[str]


@cache
def facts(path: Path) -> Facts:
    """Of a file, whose tree is read once."""
    module = ast.parse(path.read_text(encoding="utf-8"))
    functions, imported = [], set()
    for node in ast.walk(module):
        match node:
            case ast.FunctionDef(name=name, lineno=first, end_lineno=int(last)):
                functions.append((name, last - first + 1))
            case ast.Import(names=names):
                imported |= {alias.name.partition(".")[0] for alias in names}
            case ast.ImportFrom(module=str(origin)):
                imported.add(origin.partition(".")[0])
    return Facts(not module.body or ast.get_docstring(module) is not None, tuple(functions), frozenset(imported))


def test_files_stay_readable() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in sources()}
    assert len(lengths) > 150
    assert {name: n for name, n in lengths.items() if n > LONGEST_FILE} == {}


def test_functions_stay_readable() -> None:
    long = {
        f"{path.relative_to(ROOT)}:{name}": length
        for path in sources()
        for name, length in facts(path).functions
        if length > LONGEST_FUNCTION
    }
    assert long == {}


def test_names_say_what_is_inside() -> None:
    words = {path: set(path.stem.split("_")) | {path.parent.name} for path in sources()}
    assert [path for path, found in words.items() if found & UNCLEAR] == []


def test_modules_say_what_they_are() -> None:
    assert [path for path in PACKAGE.rglob("*.py") if not facts(path).documented] == []


@pytest.mark.parametrize("package", IMPORTERS)
def test_one_file_imports_a_heavy_package(package: str) -> None:
    found = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if package in facts(path).imported}
    assert found == IMPORTERS[package]


def test_every_room_is_on_a_floor() -> None:
    """import-linter says nothing about modules that its layers leave out."""
    contract = (ROOT / ".importlinter").read_text(encoding="utf-8").partition("layers =")[2].partition("\n\n")[0]
    floors = set(re.findall(r"tensorlang\.(\w+)", contract))
    rooms = {path.stem for path in PACKAGE.glob("*.py")} | {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert rooms - floors == {"__init__", "version"}
