"""Schedules before and after a change."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from benchmarks.replay import replay

ONE = ("--only", "softmax*float32 llvm -mcpu=haswell -num-cores=1")


def test_schedules_are_compared_by_name(tmp_path: Path) -> None:
    file, run = tmp_path / "before.json", CliRunner()
    assert run.invoke(replay, ["save", str(file), *ONE]).exit_code == 0
    stored = json.loads(file.read_text(encoding="utf-8"))
    assert len(stored) == 3 and all("s[" in trace for trace in stored.values())
    file.write_text(json.dumps(stored | {"softmax of others": "unknown"}), encoding="utf-8")
    same = run.invoke(replay, ["compare", str(file), *ONE])
    assert same.exit_code == 0 and same.output == "3 schedules equal, 0 differ\n"
    first = next(iter(stored))
    file.write_text(json.dumps(stored | {first: "another"}), encoding="utf-8")
    other = run.invoke(replay, ["compare", str(file), *ONE])
    assert (
        other.exit_code == 1 and "-another" in other.output and other.output.endswith("2 schedules equal, 1 differ\n")
    )
