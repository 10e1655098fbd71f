"""docs/gpu.md is true: its programs run one after the other, and print what it shows."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

PAGE = (Path(__file__).parent.parent / "docs" / "gpu.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_programs_print_what_is_shown() -> None:
    programs, shown = blocks("python"), blocks("text")
    assert len(programs) == len(shown) == 7
    names: dict[str, Any] = {}
    for program, text in zip(programs, shown, strict=True):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(program, "gpu.md", "exec"), names)
        assert printed.getvalue() == text
