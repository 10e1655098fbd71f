"""`python -m benchmarks zoo`: rows of a result, its page, and ends of backend tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.__main__ import main
from benchmarks.zoo import command, runs
from benchmarks.zoo.architectures import ARCHITECTURES
from benchmarks.zoo.backend_tests import cases, ending, reason
from benchmarks.zoo.page import page_of
from benchmarks.zoo.runs import Run
from tensorlang.networks.onnx import backend

ROOT = Path(__file__).parent.parent
RESULT = ROOT / "benchmarks" / "results" / "zoo.json"


def test_the_page_is_that_of_the_result() -> None:
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    assert (ROOT / "docs" / "zoo.md").read_text(encoding="utf-8") == page_of(result)
    rows = {(row["name"], row["way"]) for row in result["networks"]}
    assert len(rows) == len(result["networks"]) and {name for name, _ in rows} <= {a.name for a in ARCHITECTURES}


def test_what_went_wrong_is_said() -> None:
    rows = [
        {"name": "net", "package": "torch", "way": "onnx", "kernels": 3, "error": 2e-7, "why": ""},
        {"name": "net", "package": "torch", "way": "torch", "kernels": 0, "error": 0.0, "why": "it broke\nhere"},
    ]
    tests = {"counts": {"node": {"passed": 5, "not taken": 2}}, "not taken": {"A: no": 2, "B: no": 1}, "failed": {}}
    page = page_of({"networks": rows, "tests": tests, "versions": {"onnx": "1"}, "date": "today", "tolerance": 1e-4})
    assert "| torch | net | 3 / 0 | 2e-07 | **it broke** |" in page and "1 architectures" in page
    assert "| node | 5 | 2 | 0 |" in page and "- A: no: 2\n- one test each: B: no\n" in page


def test_rows_are_added_to_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, why = tmp_path / "zoo.json", [""]
    monkeypatch.setattr(
        command, "_rows", lambda names, ways: [Run(n, "p", w, 1, 0.0, why[0]) for n in names for w in ways]
    )
    monkeypatch.setattr(command, "chosen", lambda matches: {n: "p" for n in ("first", "second") if matches(n)})

    def run(*options: str) -> Any:
        return CliRunner().invoke(main, ["zoo", "--json", str(out), *options])

    assert run().exit_code == 0 and run("--only", "no such").exit_code == 2
    why[0] = "it broke"
    assert run("--only", "first", "--way", "onnx").exit_code == 1
    found = {(r["name"], r["way"]): r["why"] for r in json.loads(out.read_text())["networks"]}
    assert found == {("second", w): "" for w in runs.WAYS} | {("first", "torch"): "", ("first", "onnx"): "it broke"}
    assert "needs the result" in CliRunner().invoke(main, ["zoo", "--page"]).output


def test_ends_of_backend_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {case.name: case for case in cases(["pytorch-operator"])}
    for name in ("test_operator_exp", "test_operator_repeat", "test_operator_pad"):
        assert ending(found[name]).state == "passed"
    for wrong, why in ((np.zeros(1), "AssertionError: "), (None, "raw TypeError: ")):
        monkeypatch.setattr(backend.Prepared, "run", lambda self, inputs, wrong=wrong: (wrong[None],))
        end = ending(found["test_operator_exp"])
        assert end.state == "failed" and end.why[0].startswith(why)
    assert reason("Conv: Conv over 3 dimensions; two are") == "Conv: Conv over n dimensions"
