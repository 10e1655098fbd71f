"""docs/reference.md says what the code says."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from tensorlang.schedule.primitive import REGISTRY

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    """The names of docs/make_reference.py."""
    return runpy.run_path(str(DOCS / "make_reference.py"))


def test_the_page_is_up_to_date(script: dict[str, Any]) -> None:
    page = (DOCS / "reference.md").read_text(encoding="utf-8")
    assert page == script["reference"](), "run: python docs/make_reference.py"


def test_every_primitive_is_on_the_page(script: dict[str, Any]) -> None:
    page = script["reference"]()
    assert len(REGISTRY) >= 17
    for key, primitive in REGISTRY.items():
        assert f".{key}(" in page
        assert (primitive.__doc__ or key).partition("\n")[0] in page
