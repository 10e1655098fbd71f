"""What the README shows is what happens: its program, that program's output, and its commands."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import click
import pytest

from tensorlang.cli.main import tensorlang

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language."""
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [text for found, text in fences if found == language]


def commands() -> list[list[str]]:
    """The words of every use of the command line, without the command itself."""
    lines = [part.strip() for block in blocks("") for line in block.splitlines() for part in line.split("&&")]
    inline = re.findall(r"`(tensorlang [^`]+)`", README)
    return [shlex.split(line, comments=True)[1:] for line in (*lines, *inline) if re.match(r"(\S*/)?tensorlang ", line)]


def test_the_program_prints_what_is_shown() -> None:
    (program,), (shown, *_) = blocks("python"), blocks("text")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, "max_min.py", "exec"), {"__name__": "__main__"})
    assert printed.getvalue() == shown


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_commands_are_understood(words: list[str]) -> None:
    command: click.Command = tensorlang
    while isinstance(command, click.Group):
        name, *words = words
        command = command.commands[name]
    context = command.make_context(command.name, words)
    assert not context.args


def test_all_commands_are_shown() -> None:
    assert {words[0] for words in commands()} == set(tensorlang.commands)


def test_links_lead_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
