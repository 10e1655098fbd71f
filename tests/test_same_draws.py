"""The examples that hypothesis draws are the same in every process, whichever tests ran there before."""

from __future__ import annotations

import sys
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorlang
from tensorlang.autotune.files import load_file
from tests.profiles import NIGHTLY

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


@pytest.mark.skipif(NIGHTLY, reason="of many draws some may be made from others")
def test_every_example_is_drawn_by_itself() -> None:
    drawn: list[tuple[int, ...]] = []

    @settings(max_examples=40)
    @given(st.tuples(*[st.integers(0, 99)] * 8))
    def run(values: tuple[int, ...]) -> None:
        drawn.append(values)

    run()
    later = drawn[10:]  # the first ones are to be small
    assert not any(sum(x == y for x, y in zip(a, b, strict=True)) > 4 for a, b in combinations(later, 2))
