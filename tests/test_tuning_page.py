"""What docs/tuning.md shows works: its programs, in this order and with few trials, and its commands."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import click
import pytest

from tensorlang.cli.main import tensorlang
from tests.forked_workers import Spawners

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "tuning.md").read_text(encoding="utf-8")
FEW = 2


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language."""
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return [text for found, text in fences if found == language]


def commands() -> list[str]:
    """Every use of the command line."""
    return [line for block in blocks("") for line in block.splitlines() if line.startswith("tensorlang ")]


@pytest.mark.skipif(sys.platform != "linux", reason="runs as a fork")
def test_the_programs_run(tmp_path: Path, workers: Spawners) -> None:
    program, count = re.subn(r"(trials?)=\d+", rf"\1={FEW}", "\n".join(blocks("python")))
    assert count == 5
    (script := tmp_path / "page.py").write_text(program, encoding="utf-8")
    given = {"TENSORLANG_CHECK": "0", "PYTHONPATH": str(ROOT), "TENSORLANG_STORE": str(tmp_path / "store")}
    done = workers.run(script, tmp_path, {**os.environ, **given})
    assert done.returncode == 0, done.stderr
    assert "Schedule(relu: " in done.stdout
    logs = {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*.jsonl")}
    assert logs == {"tuning.jsonl", "templates.jsonl", "products.jsonl", "store"}


@pytest.mark.parametrize("line", commands())
def test_commands_are_understood(line: str) -> None:
    words = shlex.split(line)[1:]
    command: click.Command = tensorlang
    while isinstance(command, click.Group):
        name, *words = words
        command = command.commands[name]
    assert not command.make_context(command.name, words).args
