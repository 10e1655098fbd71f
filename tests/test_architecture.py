"""The house rules that no linter checks: sizes, names, docstrings, and the one importer of each heavy package."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tensorlang.target.kinds import KINDS

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
ROOMS = tuple(f"target/{kind}/" for kind in KINDS)
"""Where a kind of target is known by its name."""
NAMED = re.compile(rf"""["'](?:{"|".join(KINDS)})["']|["']sm_\d""")
"""Where a name of a kind or an architecture may be written."""
FOREIGN = {"autotune/importers/targets.py": {"cuda", "opencl"}}
"""Files that read names of targets which somebody else has given: those of GPUs in logs of TVM."""


def sources() -> Iterator[Path]:
    """All Python files of the project."""
    for folder in FOLDERS:
        yield from sorted((ROOT / folder).rglob("*.py"))


@cache
def text_of(path: Path) -> str:
    """What is in a file."""
    return path.read_text(encoding="utf-8")


def statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """All statements, those in others too; expressions are most of a tree, and are left out."""
    for node in body:
        yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            yield from statements(getattr(node, part, ()))


def functions_of(path: Path) -> Iterator[tuple[str, int]]:
    """The functions of a file, and how many lines each has."""
    for node in statements(ast.parse(text_of(path)).body):
        match node:
            case ast.FunctionDef(name=name, lineno=first, end_lineno=int(last)):
                yield name, last - first + 1


def imported_by(path: Path) -> set[str]:
    """The packages that a file imports."""
    found = set()
    for node in statements(ast.parse(text_of(path)).body):
        match node:
            case ast.Import(names=names):
                found |= {alias.name.partition(".")[0] for alias in names}
            case ast.ImportFrom(module=str(origin)):
                found.add(origin.partition(".")[0])
    return found


def test_files_stay_readable() -> None:
    lengths = {str(path.relative_to(ROOT)): len(text_of(path).splitlines()) for path in sources()}
    assert len(lengths) > 150
    assert {name: n for name, n in lengths.items() if n > LONGEST_FILE} == {}


def test_functions_stay_readable() -> None:
    long = {
        f"{path.relative_to(ROOT)}:{name}": length
        for path in sources()
        if len(text_of(path).splitlines()) > LONGEST_FUNCTION and "from_tvm" not in path.parts  # as others write them
        for name, length in functions_of(path)
        if length > LONGEST_FUNCTION
    }
    assert long == {}


def test_names_say_what_is_inside() -> None:
    words = {path: set(path.stem.split("_")) | {path.parent.name} for path in sources()}
    assert [path for path, found in words.items() if found & UNCLEAR] == []


def test_modules_say_what_they_are() -> None:
    undocumented = [path for path in PACKAGE.rglob("*.py") if not text_of(path).startswith(('"""', 'r"""'))]
    assert [path for path in undocumented if text_of(path).strip()] == []


@pytest.mark.parametrize("package", IMPORTERS)
def test_one_file_imports_a_heavy_package(package: str) -> None:
    named = [path for path in PACKAGE.rglob("*.py") if package in text_of(path)]
    assert {path.relative_to(PACKAGE).as_posix() for path in named if package in imported_by(path)} == IMPORTERS[
        package
    ]


def test_data_classes_are_ours() -> None:
    """`from tensorlang.dataclass import dataclass`: declaring those of the standard library is half of a start."""
    theirs = re.compile(r"^(from dataclasses import .*\bdataclass\b|import dataclasses)", re.MULTILINE)
    assert [p for p in PACKAGE.rglob("*.py") if theirs.search(text_of(p))] == [PACKAGE / "dataclass.py"]


def test_every_room_is_on_a_floor() -> None:
    """import-linter says nothing about modules that its layers leave out."""
    contract = (ROOT / ".importlinter").read_text(encoding="utf-8").partition("layers =")[2].partition("\n\n")[0]
    floors = set(re.findall(r"tensorlang\.(\w+)", contract))
    rooms = {path.stem for path in PACKAGE.glob("*.py")} | {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert rooms - floors == {"__init__", "version"}


def words_in(node: ast.AST) -> set[str]:
    """The texts in an expression that name a kind of target, or an architecture of one."""
    texts = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    return {text for text in texts if text in KINDS or re.match(r"sm_\d", text)}


def names_tested(module: ast.Module) -> set[str]:
    """The names of kinds and architectures that a file compares something with, in place or by a table of its own."""
    tables = {
        target.id: words_in(node.value)
        for node in module.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    found: set[str] = set()
    for node in ast.walk(module):
        match node:
            case ast.Compare():
                found |= words_in(node)
                found |= {word for n in ast.walk(node) if isinstance(n, ast.Name) for word in tables.get(n.id, ())}
            case ast.MatchValue() | ast.Call(func=ast.Attribute(attr="startswith" | "endswith" | "removeprefix")):
                found |= words_in(node)
    return found


def test_targets_are_asked_what_they_can_do() -> None:
    """Outside of a kind's own room nobody asks for its name, nor for that of an architecture (`target.can` instead)."""
    tested = {
        path.relative_to(PACKAGE).as_posix(): names_tested(ast.parse(text_of(path)))
        for path in PACKAGE.rglob("*.py")
        if NAMED.search(text_of(path)) and not path.relative_to(PACKAGE).as_posix().startswith(ROOMS)
    }
    assert {file: names for file, names in tested.items() if names} == FOREIGN


@pytest.mark.parametrize(
    "text",
    [
        "t.kind == 'cuda'",
        "'llvm' != t.kind",
        "t.kind in ('cuda', 'metal')",
        "dialect.name == 'opencl'",
        "t.cpu != 'sm_75'",
        "t.cpu.startswith('sm_9')",
        "GPUS = ['cuda']\nf(t.kind in GPUS)",
        "match t.kind:\n    case 'interpreter' | 'x': pass",
    ],
)
def test_questions_for_a_name_are_found(text: str) -> None:
    assert names_tested(ast.parse(text))
    assert not names_tested(ast.parse(re.sub("cuda|opencl|llvm|interpreter|sm_", "other", text)))
