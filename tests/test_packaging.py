"""What is installed: light imports, the command, the version, and dependencies that are declared."""

from __future__ import annotations

import ast
import configparser
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path

import pytest

import tensorlang
from tests.test_architecture import statements

ROOT = Path(__file__).parent.parent
HEAVY = {"click", "cupy", "islpy", "llvmlite", "pyopencl", "rich", "scipy", "xgboost"}
MODULES = {"cupy-cuda13x": "cupy", "xgboost-cpu": "xgboost"}
"""Distributions whose module has another name."""
EXTRAS = {"classic": "test", "testing": "test", "torch": "frameworks"} | {
    room: room for room in ("cluster", "cuda", "frameworks", "onnx", "opencl")
}
"""Rooms that import what an extra of setup.cfg installs."""


@pytest.fixture(scope="module")
def setup() -> configparser.ConfigParser:
    """setup.cfg."""
    found = configparser.ConfigParser()
    found.read(ROOT / "setup.cfg", encoding="utf-8")
    return found


def loaded_by(statement: str) -> set[str]:
    """Top-level modules that a fresh Python has after a statement."""
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stdout.split()}


@pytest.mark.parametrize(
    "statement",
    [
        "import tensorlang",
        "from tensorlang import te",
        "from tensorlang import te; A = te.placeholder((8,)); te.compute((8,), lambda i: te.exp(A[i]))",
        "import tensorlang; tensorlang.nd.array([1, 2])",
        "import tensorlang; tensorlang.compile; tensorlang.networks.Model",
    ],
)
def test_heavy_packages_wait_for_their_use(statement: str) -> None:
    assert loaded_by(statement) & HEAVY == set()


def test_heavy_packages_are_found_when_used() -> None:
    used = "from tensorlang import te, cli; import tensorlang.cli.main, tensorlang.cli.outcome; te.create_schedule"
    assert {"click", "islpy", "rich"} <= loaded_by(used)
    assert "llvmlite" in loaded_by("import tensorlang.target.llvm.compiling")


def test_the_version_is_one(setup: configparser.ConfigParser) -> None:
    assert setup["metadata"]["version"] == "attr: tensorlang.version.VERSION"
    assert re.fullmatch(r"\d+\.\d+\.\d+", tensorlang.__version__)
    newest = re.search(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest is not None
    assert newest[1] == tensorlang.__version__


def test_types_are_shipped(setup: configparser.ConfigParser) -> None:
    assert resources.files(tensorlang).joinpath("py.typed").is_file()
    assert "py.typed" in setup["options.package_data"]["tensorlang"]


def test_the_command_exists(setup: configparser.ConfigParser) -> None:
    line = setup["options.entry_points"]["console_scripts"].strip()
    name, module, function = re.fullmatch(r"(\S+) = (\S+):(\S+)", line).groups()  # type: ignore[union-attr]
    assert name == "tensorlang"
    assert callable(getattr(importlib.import_module(module), function))


def test_every_import_is_declared(setup: configparser.ConfigParser) -> None:
    needed = declared(setup["options"]["install_requires"])
    extras = {room: declared(setup["options.extras_require"][extra]) for room, extra in EXTRAS.items()}
    for path in sorted((ROOT / "tensorlang").rglob("*.py")):
        allowed = needed.union(*(extras[room] for room in extras if room in path.parts))
        foreign = imported(path) - set(sys.stdlib_module_names) - {"tensorlang"}
        assert foreign <= allowed, f"{path.relative_to(ROOT)} imports {foreign - allowed}, which setup.cfg lacks"


def test_every_dependency_is_used(setup: configparser.ConfigParser) -> None:
    used = {name for path in (ROOT / "tensorlang").rglob("*.py") for name in imported(path)}
    assert declared(setup["options"]["install_requires"]) <= used


def declared(text: str) -> set[str]:
    """Modules of a list of requirements."""
    names = [re.match(r"[A-Za-z0-9_-]+", line) for line in text.split("\n") if line.strip()]
    return {MODULES.get(found[0], found[0].replace("-", "_")) for found in names if found}


@cache
def imported(path: Path) -> frozenset[str]:
    """Top-level modules that a file imports, function-local imports included."""
    return frozenset(_imported(ast.parse(path.read_text(encoding="utf-8"))))


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in statements(tree.body):
        match node:
            case ast.Import():
                yield from (alias.name.partition(".")[0] for alias in node.names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module.partition(".")[0]
