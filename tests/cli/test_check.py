"""`tensorlang check`: verdicts and explanations for the schedules in a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tensorlang.autotune.files import load_file
from tensorlang.cli.main import main
from tensorlang.testing import check_schedule

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

def scaled(rows, factor):
    D = te.placeholder((rows,), name="D")
    return [D, te.compute((rows,), lambda i: D[i] * factor, name="E")]
"""

JACOBI = """
from tensorlang import te

@te.hybrid.script
def jacobi(A, B, steps):
    n = A.shape[0]
    for t in range(steps):
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                B[i, j] = 0.2 * (A[i, j] + A[i, j - 1] + A[i, j + 1] + A[i - 1, j] + A[i + 1, j])
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                A[i, j] = 0.2 * (B[i, j] + B[i, j - 1] + B[i, j + 1] + B[i - 1, j] + B[i + 1, j])

n, steps = te.var("n"), te.var("steps")
A, B = (te.placeholder((n, n), "float64", name=name) for name in "AB")
outputs = jacobi(A, B, steps)

def tiles():
    s = te.create_schedule(outputs)
    stage = s["jacobi"]
    stage.fuse_with("i", stage.shift("i_1", 1))
    stage.fuse_with("j", stage.shift("j_1", 1))
    loops = [stage.split(axis, size) for axis, size in zip(stage.leaf_iter_vars, (4, 8, 8))]
    stage.reorder(*(o for o, _ in loops), *(i for _, i in loops))
    return s
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


def test_arguments_reach_the_function(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{file}:scaled", "--args", "30,2") == 0
    assert "E[30] in global memory, 120 bytes" in capsys.readouterr().out
    assert run(str(file), "--args", "30") == 2
    assert "name one" in capsys.readouterr().err


def test_an_illegal_schedule_ends_with_one(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{file}:illegal") == 1
    out, _ = capsys.readouterr()
    assert "IllegalParallel: s['C'].parallel('k')" in out
    assert "operator.py:" in out
    assert "s.rfactor('C', 'k', factor_axis=0); s['C.rf'].parallel('k')" in out


def test_the_repair_of_tiles_in_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tiles of Jacobi without a skew are refused; what is printed instead is legal, and computes the same."""
    path = tmp_path / "stencil.py"
    path.write_text(JACOBI)
    assert run(f"{path}:tiles") == 1
    out, _ = capsys.readouterr()
    assert out.startswith("IllegalOrder: s['jacobi'].reorder('t_o', 'i_fused_o', 'j_fused_o', ")
    assert "smallest case (n=9, steps=2): anti through B[1, 6]\n    first  jacobi.S1[0, 1, 7]" in out
    assert "fails exactly when steps >= 2 and n >= 9" in out
    (repair,) = [line for line in out.splitlines() if line.startswith("  legal: ")]
    repair = repair.removeprefix("  legal: ")
    assert "s['jacobi'].skew('j_fused', by='t', factor=2)" in repair
    path.write_text(f"{JACOBI}\ndef repaired():\n    {repair}\n    return s\n")
    assert run(f"{path}:repaired") == 0
    assert capsys.readouterr()[0].startswith("repaired: legal\n")
    made = load_file(path)
    check_schedule(made.repaired(), [made.A, made.B, made.steps], {"n": 21, "steps": 6})


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


def test_sizes_and_pictures_that_make_no_sense(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{file}:legal", "--sizes", "m=3") == 2
    assert "m is no size of the program; there are n" in capsys.readouterr().err
    assert run(f"{file}:legal", "--svg", str(file.with_suffix(".svg"))) == 2
    assert "a picture needs a statement with two axes, and there is none" in capsys.readouterr().err
    file.write_text(PROGRAM.replace("return [A, B]", "return A"))
    assert run(f"{file}:tensors") == 2
    assert "must return a schedule or computed tensors" in capsys.readouterr().err
