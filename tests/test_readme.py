"""What the README shows is what happens: its program, that program's output, and its commands."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tensorlang.cli.main import tensorlang

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
NAMES = ("max_min.py", "seidel.py", "layer.py")
"""The files that hold the programs, one after the other; a block of text after each shows what it prints."""


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language."""
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [text for found, text in fences if found == language]


def commands() -> list[list[str]]:
    """The words of every use of the command line, without the command itself."""
    lines = [part.strip() for block in blocks("") for line in block.splitlines() for part in line.split("&&")]
    inline = re.findall(r"`(tensorlang [^`]+)`", README)
    return [shlex.split(line, comments=True)[1:] for line in (*lines, *inline) if re.match(r"(\S*/)?tensorlang ", line)]


@pytest.mark.parametrize("name", NAMES)
def test_a_program_prints_what_is_shown(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(blocks("python")[NAMES.index(name)], encoding="utf-8")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(str(file))
    assert printed.getvalue() == blocks("text")[NAMES.index(name)]


def test_every_program_is_run() -> None:
    assert len(blocks("python")) == len(NAMES)


@pytest.mark.parametrize("words", [words for words in commands() if words[0] == "check"], ids=" ".join)
def test_checks_end_as_is_said(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(tensorlang, words)
    assert result.exit_code == int("without" in words[1]), result.output
    assert ("IllegalOrder: s['jacobi'].tile_by" in result.output) is ("without" in words[1])


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
        text = re.sub(r"`[^`\n]*`", "", page.read_text(encoding="utf-8"))  # code calls what it has taken out of a list
        for target in re.findall(r"\]\((?!https?://)([^)#]+)", text):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
