"""The house rules that no linter checks: sizes, names, docstrings, and the one importer of each heavy package."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
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


def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def test_files_stay_readable() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in sources()}
    assert len(lengths) > 150
    assert {name: n for name, n in lengths.items() if n > LONGEST_FILE} == {}


def test_functions_stay_readable() -> None:
    long = {}
    for path in sources():
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef) and node.end_lineno is not None:
                length = node.end_lineno - node.lineno + 1
                if length > LONGEST_FUNCTION:
                    long[f"{path.relative_to(ROOT)}:{node.name}"] = length
    assert long == {}


def test_names_say_what_is_inside() -> None:
    words = {path: set(path.stem.split("_")) | {path.parent.name} for path in sources()}
    assert [path for path, found in words.items() if found & UNCLEAR] == []


def test_modules_say_what_they_are() -> None:
    modules = {path: parsed(path) for path in PACKAGE.rglob("*.py")}
    assert [path for path, module in modules.items() if module.body and ast.get_docstring(module) is None] == []


@pytest.mark.parametrize("package", IMPORTERS)
def test_one_file_imports_a_heavy_package(package: str) -> None:
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(parsed(path)):
            match node:
                case ast.Import(names=names) if any(a.name.partition(".")[0] == package for a in names):
                    found.add(path.relative_to(PACKAGE).as_posix())
                case ast.ImportFrom(module=str(module)) if module.partition(".")[0] == package:
                    found.add(path.relative_to(PACKAGE).as_posix())
    assert found == IMPORTERS[package]


def test_every_room_is_on_a_floor() -> None:
    """import-linter says nothing about modules that its layers leave out."""
    contract = (ROOT / ".importlinter").read_text(encoding="utf-8").partition("layers =")[2].partition("\n\n")[0]
    floors = set(re.findall(r"tensorlang\.(\w+)", contract))
    rooms = {path.stem for path in PACKAGE.glob("*.py")} | {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert rooms - floors == {"__init__", "version"}
