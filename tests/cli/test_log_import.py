"""`tensorlang log import` of TVM's logs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tensorlang.autotune import LogWriter, default_store, find_best, read_log, task_of
from tensorlang.cli.main import main

from ..autotune.importers.programs import matmul
from ..autotune.importers.written import ANSOR, AUTOTVM, ON_A_GPU, PROGRAMS, ansor
from ..autotune.records.hand import hand_record


@pytest.fixture
def tvm(tmp_path: Path) -> Path:
    path = tmp_path / "tvm.json"
    failed = ansor("v0.6", ["matmul", 8, 8, 8], [], costs=[1e10], error=4)
    path.write_text("\n".join(["# a comment", ANSOR["tiled"], ON_A_GPU, failed]) + "\n")
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> tuple[str, str]:
    with pytest.raises(SystemExit) as stop:
        main(["log", "import", *map(str, arguments)])
    out, err = capsys.readouterr()
    assert int(stop.value.code or 0) == code, err
    return out, err


def test_records_are_appended_and_refusals_told(tvm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "out.jsonl"
    out, err = run(capsys, tvm, "--program", PROGRAMS, "-o", log)
    assert out.splitlines() == [
        f"{tvm}:1: refused: it is a comment",
        f"{tvm}:4: refused: its measurement failed: it failed while it ran",
        f"{tvm}: 2 of 4 lines became records; 1 for cuda, which cannot run here",
        f"{log}: 2 records from 1 file, 0 known already",
    ]
    assert not err
    assert [r.workload.name for r in read_log(log).records] == [f"{PROGRAMS}:matmul", f"{PROGRAMS}:conv2d_layer"]
    out, _ = run(capsys, tvm, "--program", f"{PROGRAMS}:matmul", "-o", log)
    assert "its workload 'conv2d_layer' is unknown" in out
    assert "0 records from 1 file, 1 known already" in out


def test_schedules_are_run_when_asked(tvm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "out.jsonl"
    out, _ = run(capsys, tvm, "--program", PROGRAMS, "-o", log, "--verify", "--json")
    refused, failed, summary, written = map(json.loads, out.splitlines())
    assert refused == {"file": str(tvm), "line": 1, "refused": "it is a comment"}
    assert failed["line"] == 4
    assert summary == {"file": str(tvm), "imported": 2, "refused": 2, "verified": {"equal": 1, "not run": 1}}
    assert written == {"output": str(log), "records": 2, "known": 0}
    assert [r.checked for r in read_log(log).records] == [True, False]


def test_templates_of_tvm_need_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, log = tmp_path / "tophub.log", tmp_path / "out.jsonl"
    path.write_text(f"{AUTOTVM['window']}\n{AUTOTVM['batched']}\n")
    out, _ = run(capsys, path, "-o", log, "--target", "llvm -mcpu=haswell -num-cores=8")
    assert "2 of 2 lines became records" in out
    assert {(r.target["cpu"], r.threads) for r in read_log(log).records} == {("haswell", 8)}


def test_the_default_store_keeps_them_apart(
    tvm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TENSORLANG_STORE", str(tmp_path / "store"))
    own = tmp_path / "own.jsonl"
    with LogWriter(own) as writer:
        writer.append(hand_record())
    run(capsys, tvm, own, "--program", PROGRAMS)
    assert [r.workload.name for r in read_log(default_store()).records] == ["matmul"]
    assert len(read_log(tmp_path / "store" / "imported-tvm.jsonl").records) == 2
    tensors = matmul(24, 20, 16)
    assert find_best(None, task_of(tensors, target="llvm -mcpu=skylake-avx512 -num-cores=2")).sketch == "ansor v0.6"


def test_nothing_is_written_when_nothing_can_be_imported(
    tvm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, log = tmp_path / "bad.json", tmp_path / "out.jsonl"
    bad.write_text(ansor("v0.9", ["matmul", 8, 8, 8], []) + "\n")
    _, err = run(capsys, tvm, bad, "--program", PROGRAMS, "-o", log, code=2)
    assert "can be imported" in err
    assert "version 'v0.9' of Ansor" in err
    assert not log.exists()
