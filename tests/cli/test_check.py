"""`tensorlang check`: verdicts and explanations for the schedules in a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tensorlang.cli.main import main

PROGRAM = """
from tensorlang import te

n = te.var("n")
A = te.placeholder((n,), name="A")
k = te.reduce_axis((0, n), "k")
B = te.compute((n,), lambda i: A[i] * 2, name="B")

def legal():
    s = te.create_schedule(B.op)
    s[B].parallel("i")
    return s

def illegal():
    X = te.placeholder((4, 8), name="X")
    k = te.reduce_axis((0, 8), "k")
    C = te.compute((4,), lambda i: te.sum(X[i, k], axis=k), name="C")
    s = te.create_schedule(C.op)
    s[C].parallel(k)
    return s

def tensors():
    return [A, B]

def nothing():
    return 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "operator.py"
    path.write_text(PROGRAM)
    return path


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(["check", *arguments])
    return int(stop.value.code or 0)


def test_a_legal_schedule_is_explained(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{file}:legal", "--sizes", "n=30") == 0
    out, _ = capsys.readouterr()
    assert out.startswith("legal: legal\n")
    assert "B.i [parallel]  parallel: no dependence between its iterations" in out
    assert "B[30] in global memory, 120 bytes" in out


def test_an_illegal_schedule_ends_with_one(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{file}:illegal") == 1
    out, _ = capsys.readouterr()
    assert "IllegalParallel: s['C'].parallel('k')" in out
    assert "operator.py:" in out
    assert "s.rfactor('C', 'k', factor_axis=0); s['C.rf'].parallel('k')" in out


def test_json_for_machines(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{file}:legal", "--json") == 0
    data = json.loads(capsys.readouterr()[0])
    assert data["legal"] is True and data["schedules"]["legal"]["loops"][0]["order"] == "parallel"
    assert run(f"{file}:illegal", "--json") == 1
    data = json.loads(capsys.readouterr()[0])
    assert data["legal"] is False and data["error"] == "IllegalParallel"


def test_tensors_mean_the_default_schedule(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{file}:tensors") == 0
    assert "B.i  parallel" in capsys.readouterr()[0]


def test_schedules_of_a_module(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "module.py"
    path.write_text(PROGRAM + "\nfirst = legal()\nsecond = te.create_schedule(B.op)\n")
    assert run(str(path)) == 0
    out, _ = capsys.readouterr()
    assert "first: legal" in out and "second: legal" in out


def test_a_picture_of_two_axes(tmp_path: Path) -> None:
    path = tmp_path / "square.py"
    path.write_text(
        "from tensorlang import te\nA = te.placeholder((4, 5), name='A')\n"
        "B = te.compute((4, 5), lambda i, j: A[i, j] + 1, name='B')\ns = te.create_schedule(B.op)\n"
    )
    svg = tmp_path / "space.svg"
    assert run(str(path), "--svg", str(svg)) == 0
    assert svg.read_text().count("<circle") == 20


@pytest.mark.parametrize(
    "arguments, text",
    [
        ([":nothing"], "must return a schedule or computed tensors, got 3"),
        ([":absent"], "has no function 'absent'"),
        ([""], "holds no schedule; name a function that returns one"),
        ([":legal", "--sizes", "n"], "--sizes takes n=100,m=30"),
    ],
)
def test_mistakes_end_with_two(file: Path, arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{file}{arguments[0]}", *arguments[1:]) == 2
    assert text in capsys.readouterr()[1]
