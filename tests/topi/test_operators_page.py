"""The page of the library's operators: every operator is there, and runs in every dtype that the page lists."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from tensorlang import topi

DOCS = Path(__file__).parents[2] / "docs"
ROWS = re.findall(
    r"^\| `(\w+)` \| ([\w,]+) \| (.*) \| ([\w, ]*) \|$", (DOCS / "operators.md").read_text("utf-8"), re.MULTILINE
)
ENTRIES = [(name, dtype) for name, *_, dtypes in ROWS for dtype in dtypes.split(", ")]


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    """The names of docs/make_operators.py."""
    return runpy.run_path(str(DOCS / "make_operators.py"))


def test_every_operator_is_on_the_page() -> None:
    wanted = [(name, ",".join(operator.sizes), list(operator.options)) for name, operator in topi.OPERATORS.items()]
    found = [(name, sizes, re.findall(r"`(\w+)=", options)) for name, sizes, options, _ in ROWS]
    assert found == wanted, "run: python docs/make_operators.py"


def test_every_function_is_on_the_page(script: dict[str, Any]) -> None:
    page = (DOCS / "operators.md").read_text("utf-8")
    assert page.endswith(script["functions"]()), "run: python docs/make_operators.py"


@pytest.mark.sampled(8)
@pytest.mark.covering(1)
@pytest.mark.parametrize(
    ("name", "dtype"), [(name, dtype) for name, *_, dtypes in ROWS for dtype in dtypes.split(", ")]
)
def test_an_operator_runs_in_a_dtype(script: dict[str, Any], name: str, dtype: str) -> None:
    assert script["runs"](name, dtype)
