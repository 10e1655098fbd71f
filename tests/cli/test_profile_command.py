"""`tensorlang profile` of a function in a file: with the schedule that it returns."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from tensorlang.cli.main import tensorlang as command

PROGRAM = """
from pathlib import Path

from tensorlang import te

def hand():
    calls = Path(__file__).with_name("calls")
    calls.write_text("x" + (calls.read_text() if calls.exists() else ""))
    A = te.placeholder((64, 64), name="A")
    B = te.compute((64, 64), lambda i, j: A[i, j] + 1.0, name="B")
    C = te.compute((64, 64), lambda i, j: B[i, j] * 2.0, name="C")
    s = te.create_schedule(C.op)
    s[B].compute_root()
    return s, [A, C]
"""


def test_a_function_is_called_once_and_its_schedule_profiled(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(PROGRAM, encoding="utf-8")
    done = CliRunner().invoke(command, ["profile", f"{file}:hand", "--threads", "1", "--repeat", "1", "--json"])
    assert done.exit_code == 0, done.output
    stages = {stage for part in json.loads(done.output)["parts"] for stage in part["stages"]}
    assert "B" in stages  # the library would compute it inside of C
    assert (tmp_path / "calls").read_text(encoding="utf-8") == "x"  # a function may be slow, or have effects
