"""docs/from_halide.md is true: its program prints what is shown, and what its tables name is there."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

import tensorlang
from tensorlang import te, topi

PAGE = (Path(__file__).parent.parent / "docs" / "from_halide.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| `")]


def block(language: str) -> str:
    """The one fenced block of a language."""
    (text,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(text)


def test_the_program_prints_what_is_shown() -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block("python"), "from_halide.py", "exec"), {})
    assert printed.getvalue() == block("text")


def names() -> list[str]:
    """What the second column and the notes name: attributes of modules, schedules, stages and kernels."""
    text = " ".join(cell for row in ROWS for cell in row[1:])
    return sorted(set(re.findall(r"`((?:s\[C\]|s|te|topi|tensorlang|kernel)(?:\.\w+)+)", text)))


def test_every_name_is_there() -> None:
    A = te.placeholder((4,), name="A")
    C = te.compute((4,), lambda i: A[i] + 1, name="C")
    s = te.create_schedule(C.op)
    kernel = tensorlang.build(s, [A, C])
    known = SimpleNamespace(te=te, topi=topi, tensorlang=tensorlang, s=s, stage=s[C], kernel=kernel)
    assert len(names()) > 40
    for name in names():
        found: object = known
        for part in name.replace("s[C]", "stage").split("."):
            assert hasattr(found, part), name
            found = getattr(found, part)


@pytest.mark.parametrize("word", ["store_at", "store_root", "compute_with", "gpu_blocks", "ring_buffer"])
def test_words_of_halide_are_answered_by_what_the_page_says(word: str) -> None:
    (row,) = [row for row in ROWS if f"`{word}`" in row[0]]
    C = te.compute((4,), lambda i: i + 1, name="C")
    with pytest.raises(AttributeError) as refused:
        getattr(te.create_schedule(C.op)[C], word)
    assert any(name in str(refused.value) for name in re.findall(r"s\[C\]\.(\w+)", row[1]))
