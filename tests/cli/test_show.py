"""tensorlang lower, asm and explain of a function in a file."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from tensorlang.cli.main import tensorlang
from tensorlang.target.detect import host_cpu

SOURCE = """
from tensorlang import te


def tensors(n):
    x = te.placeholder((n,), name="x")
    k = te.reduce_axis((0, n), "k")
    return [x, te.compute((1,), lambda i: te.sum(x[k] * x[k], axis=k), name="S")]


def by_hand(n):
    x, S = tensors(n)
    return te.create_schedule(S.op), [x, S]


def nothing():
    return 3
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("show") / "squares.py"
    path.write_text(SOURCE, encoding="utf-8")
    return str(path)


def run(*words: str) -> str:
    result = CliRunner().invoke(tensorlang, words)
    assert result.exit_code == 0, result.output
    return result.output


def test_loops(file: str) -> None:
    assert "  for k in range(5000):\n    S[0] = S[0] + x[k] * x[k]\n" in run(
        "lower", f"{file}:by_hand", "--args", "5000"
    )
    assert "S.rf" in run("lower", f"{file}:tensors", "--args", "5000")


def test_warnings_are_told_and_gone_where_the_library_schedules(file: str) -> None:
    told = run("explain", f"{file}:by_hand", "--args", "50000")
    assert (
        "S.k  reduction" in told
        and "S: the reduction over k is not split into partial results; s['S'].split('k', factor=16)" in told
    )
    assert "is not split" not in run("explain", f"{file}:tensors", "--args", "50000")
    assert '"warnings": [{"stage": "S"' in run("explain", f"{file}:by_hand", "--args", "50000", "--json")


@pytest.mark.skipif(host_cpu().architecture != "x86_64", reason="instructions of x86-64")
def test_the_hot_loop_is_marked(file: str) -> None:
    hot = run("asm", f"{file}:by_hand", "--args", "5000", "--hot")
    assert "\tj" in hot and not hot.startswith("> ")
    marked = [line[2:] for line in run("asm", f"{file}:by_hand", "--args", "5000").splitlines() if line[:2] == "> "]
    assert marked == hot.splitlines()


def test_what_is_no_program(file: str) -> None:
    result = CliRunner().invoke(tensorlang, ["lower", f"{file}:nothing"])
    assert result.exit_code == 2 and "or a schedule and its tensors" in result.output and "got 3" in result.output
    result = CliRunner().invoke(tensorlang, ["asm", f"{file}:tensors", "--args", "8", "--target", "interpreter"])
    assert result.exit_code == 2 and "interpreter has no assembly" in result.output
