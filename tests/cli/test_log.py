"""`tensorlang log`: every command on real files, for people and for machines."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tensorlang.autotune import Status, TuningRecord, create_task, read_log
from tensorlang.autotune.records import log as logs
from tensorlang.autotune.records.record import BY_STATUS
from tensorlang.cli.main import main
from tests.forked_workers import COMMAND

from ..autotune.records.hand import FullDisk, hand_record, record_of, write_log

SMALL = hand_record((8, 8, 8), 1e-6)
FAILED = replace(SMALL, status=Status.CRASH, seconds=(), error="killed by SIGSEGV", verdict=BY_STATUS)


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TENSORLANG_STORE", str(tmp_path / "store"))
    return tmp_path / "store"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_log(tmp_path / "log.jsonl", hand_record(), hand_record(seconds=2e-3), FAILED, SMALL)


class Runner:
    """Runs `tensorlang log` here; keeps what it printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys
        self.out = self.err = ""

    def __call__(self, *arguments: object, code: int = 0) -> str:
        with pytest.raises(SystemExit) as stop:
            main(["log", *map(str, arguments)])
        self.out, self.err = self.capsys.readouterr()
        assert int(stop.value.code or 0) == code, self.err
        return self.out

    def json(self, *arguments: object, code: int = 0) -> list[Any]:
        return [json.loads(line) for line in self(*arguments, "--json", code=code).splitlines()]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Runner:
    return Runner(capsys)


def test_show_lists_one_record_a_line_however_long(log: Path, run: Runner) -> None:
    decisions = {f"a_long_name_of_a_decision_{n}": n for n in range(9)}
    write_log(log, replace(SMALL, decisions=decisions))
    lines = run("show", log).splitlines()
    assert len(lines) == 6
    assert "crash" in lines[3]
    assert "a_long_name_of_a_decision_8=8" in lines[5]


def test_best_is_of_every_workload(log: Path, run: Runner) -> None:
    out = run("best", log)
    assert [line for line in out.splitlines() if line.startswith("#")] == [
        f"# {r.workload}, haswell, 1 thread: {time}, {r.gflops:.1f} GFLOP/s (2026-01-01T00:00:00Z)"
        for r, time in ((hand_record(), "1 ms"), (SMALL, "1 µs"))
    ]
    assert "s['C'].split('i', factor=8)" in out
    assert [TuningRecord.from_json(data) for data in run.json("best", log)] == [hand_record(), SMALL]


def test_torn_lines_are_reported_and_repaired(log: Path, run: Runner) -> None:
    with log.open("ab") as file:
        file.write(b'\n{"workload": {"na')
    run("best", log)
    assert f"warning: {log}: skipped 1 torn line" in run.err
    assert run("repair", log) == f"{log}: 4 lines kept, 1 torn ones moved to {log}.torn\n"
    assert run("repair", log) == f"{log}: 4 lines kept, none torn\n"
    assert run.json("repair", log) == [{"file": str(log), "kept": 4, "removed": 0, "torn": None}]
    run("best", log)
    assert run.err == ""


def test_split_and_merge(log: Path, tmp_path: Path, run: Runner) -> None:
    assert len(run("split", log, "-o", tmp_path / "parts").splitlines()) == 3
    parts = sorted((tmp_path / "parts").iterdir())
    assert [len(read_log(part).records) for part in parts] == [2, 2]
    assert [d["records"] for d in run.json("split", log, "-o", tmp_path / "t", "--by", "workload, target")] == [2, 2]
    assert "exists already" in (run("split", log, "-o", tmp_path / "parts", code=2), run.err)[1]
    assert run.json("merge", *parts, log, "-o", tmp_path / "all")[0]["duplicates"] == 4
    assert "4 records from 2 logs, 0 duplicates" in run("merge", *parts, "-o", tmp_path / "all")
    assert sorted(map(repr, read_log(tmp_path / "all").records)) == sorted(map(repr, read_log(log).records))


def test_validate_ends_with_1_when_a_record_is_at_fault(log: Path, run: Runner) -> None:
    assert run("validate", log).splitlines()[-1] == "2 records: 2 legal"
    assert run("validate", log, "--all").splitlines()[-1] == "3 records: 3 legal"
    bad = [*hand_record().trace, {"step": "vectorize", "stage": "C", "axis": "i_o"}, {"step": "bend"}]
    write_log(log, hand_record(trace=bad, seconds=1e-9))
    lines = run("validate", log, code=1).splitlines()
    assert "refused" in lines[1]
    assert lines[-1] == "2 records: 1 legal, 1 refused"
    found = run.json("validate", log, "--all", code=1)
    assert [d["outcome"] for d in found] == ["legal", "legal", "legal", "refused"]


def test_diff_compares_the_best(log: Path, tmp_path: Path, run: Runner) -> None:
    other = write_log(tmp_path / "other", hand_record(seconds=5e-4), hand_record((9, 9, 9)))
    lines = run("diff", log, other).splitlines()
    assert lines[1].split()[-6:] == ["1", "1", "ms", "500", "µs", "2.000"]
    assert lines[2].split()[-2:] == ["-", "-"]
    assert [d["ratio"] for d in run.json("diff", log, other)] == [2.0, None, None]
    assert "no such log" in (run("diff", log, tmp_path / "none", code=2), run.err)[1]


def test_export_and_import(log: Path, tmp_path: Path, own_store: Path, run: Runner) -> None:
    assert len(run("export", log).splitlines()) == 5
    assert len(run("export", log, "--best").splitlines()) == 3
    assert run("export", log, "--format", "python").count("\ndef matmul_") == 2
    document = tmp_path / "out.json"
    assert run("export", log, "--format", "json", "-o", document) == ""
    assert "4 records from 1 file, 0 known already" in run("import", document)
    assert run.json("import", log, document)[0] == {
        "output": str(next(own_store.glob("*.jsonl"))),
        "records": 0,
        "known": 8,
    }
    assert run.json("best", "default") == run.json("best", log)
    assert "cannot write" in (run("export", log, "-o", log / "x", code=2), run.err)[1]
    assert "unknown format 'cards'; there are " in (run("import", log, "--format", "cards", code=2), run.err)[1]


def test_a_tuner_whose_disk_is_full_says_so_and_stops(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "os", FullDisk())
    log = tmp_path / "log.jsonl"
    with pytest.raises(SystemExit) as stop:
        main(["tune", "matmul", "--shape", "24,40,16", "--threads", "1", "--trials", "2", "--log", str(log)])
    assert stop.value.code == 2
    wanted = f"error: cannot write {log}: No space left on device; the records before this one are whole"
    assert capsys.readouterr().err.splitlines()[-1] == wanted


def test_tuning_into_the_default_store(own_store: Path, run: Runner) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["tune", "matmul", "--shape", "24,40,16", "--threads", "1", "--trials", "2", "--log", "default", "--json"])
    assert not stop.value.code
    run.capsys.readouterr()
    records = [TuningRecord.from_json(data) for data in run.json("show", "default")]
    assert len(records) == 2
    assert all(r.workload.program and r.verdict.legal and r.host["peak_gflops"] > 0 for r in records)
    assert [path.suffix for path in own_store.iterdir()] == [".jsonl"]


def test_two_tuners_killed_on_one_log_leave_it_sound(tmp_path: Path, run: Runner) -> None:
    log = tmp_path / "log"
    tune = [*COMMAND, "tune", "--threads", "1", "--trials", "500", "--log", str(log)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    shapes = ("24,40,16", "16,24,8")
    tuners = [
        subprocess.Popen([*tune, "matmul", "--shape", shape], env=environment, stderr=subprocess.DEVNULL)
        for shape in shapes
    ]
    deadline = time.monotonic() + 120
    while not log.exists() or any(log.read_bytes().count(f'"args":[{shape},'.encode()) < 2 for shape in shapes):
        assert time.monotonic() < deadline
        assert all(tuner.poll() is None for tuner in tuners)
        time.sleep(0.05)
    for tuner in tuners:
        tuner.kill()
        tuner.wait()
    kept = read_log(log)
    assert (kept.torn <= 2, kept.foreign) == (True, 0)
    assert len(kept.records) >= 4
    assert run("validate", log).splitlines()[-1] == "2 records: 2 legal"
    assert f"{len(kept.records)} lines kept" in run("repair", log)


def test_show_tells_what_a_template_chose(log: Path, run: Runner) -> None:
    write_log(log, replace(SMALL, decisions={"tile_x": 17}, settings={"tile_x": [-1, 16]}))
    assert run("show", log, "--limit", 1).splitlines()[-1].endswith("tile_x=[-1,16]")
    (data,) = run.json("show", log, "--limit", 1)
    assert (data["decisions"], data["settings"]) == ({"tile_x": 17}, {"tile_x": [-1, 16]})
    assert "tile_x=[-1,16]" in run("export", log)


def test_validate_is_told_where_a_file_has_moved(tmp_path: Path, run: Runner) -> None:
    operators = Path(__file__).parents[1] / "autotune" / "operators.py"
    task = create_task(f"{operators}:max_of_min", (7, 19, 5, "int32"), threads=1)
    moved = replace(record_of(task), workload=replace(task.workload, name="old.py:max_of_min"))
    log = write_log(tmp_path / "log", moved)
    assert "1 unknown" in run("validate", log)
    for program in (operators, f"{operators}:max_of_min", f"old.py:max_of_min={operators}:max_of_min"):
        assert "1 legal" in run("validate", log, "--program", program)
    assert "no such file: nowhere.py" in (run("validate", log, "--program", "nowhere.py", code=2), run.err)[1]
