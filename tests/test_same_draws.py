"""The examples that hypothesis draws are the same in every process, whichever tests ran there before."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import tensorlang
from tensorlang.autotune.files import load_file

PACKAGE = Path(tensorlang.__file__).parent
OWN = "tensorlang_operator_own"


def test_every_module_is_imported_before_the_first_test() -> None:
    ours = {str(path) for path in PACKAGE.rglob("*.py") if path.name != "__main__.py"}
    loaded = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    assert sorted(ours - loaded) == []


@pytest.mark.parametrize("turn", [1, 2])
def test_files_of_one_test_are_gone_in_the_next(turn: int, tmp_path: Path) -> None:
    assert OWN not in sys.modules
    path = tmp_path / "own.py"
    path.write_text(f"TURN = {turn}\n", encoding="utf-8")
    assert turn == load_file(path).TURN
    assert OWN in sys.modules
