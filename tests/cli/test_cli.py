"""The command line: what it prints, what it refuses, and how it ends."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tensorlang.autotune import LogWriter, read_log
from tensorlang.autotune.records.record import SCHEMA
from tensorlang.cli.main import main
from tensorlang.runtime.threads import available_cores
from tensorlang.target.rates import Rates
from tests.forked_workers import COMMAND

OPERATORS = Path(__file__).parents[1] / "autotune" / "operators.py"
MATMUL = ["matmul", "--shape", "24,40,16", "--threads", "1"]


def run(arguments: list[str]) -> int:
    """Run the command in this process; its exit code."""
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    return int(stop.value.code or 0)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of six trials."""
    path = tmp_path_factory.mktemp("cli") / "log.jsonl"
    assert run(["tune", *MATMUL, "--trials", "6", "--log", str(path), "--json"]) == 0
    return path


def test_tune_shows_progress_and_ends_with_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    assert run(["tune", *MATMUL, "--trials", "3", "--log", str(log)]) == 0
    out, err = capsys.readouterr()
    assert re.search(r"trials 3/3  best [\d.]+ \S+, [\d.]+ GFLOP/s  of peak \d+%  failures .*left 0:00", err)
    assert " = s.sample_choice('" in out
    assert re.search(r"tensorlang .*NumPy .*times the speed of NumPy.*, timed in turn", out, re.DOTALL)
    assert "3 trials in" in out
    assert len(read_log(log).records) == 3


def test_tune_prints_one_json_document(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tune", *MATMUL, "--trials", "6", "--log", str(log), "--json"]) == 0
    out, err = capsys.readouterr()
    data = json.loads(out)
    assert (data["trials"], data["resumed"]) == (6, 6)
    assert data["best"]["gflops"] > 0
    assert data["best"]["comparison"]["competitor"].startswith("NumPy")
    assert " = s.sample_choice(" in data["best"]["schedule"]
    assert err == ""


def test_tune_takes_a_users_operator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["tune", f"{OPERATORS}:max_of_min", "--args", "7,19,5,int32", "--threads", "1"]
    assert run([*arguments, "--trials", "2", "--log", str(tmp_path / "log")]) == 0
    assert "NumPy reference evaluation" in capsys.readouterr().out


def test_bench_applies_the_best_of_a_log(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", *MATMUL, "--log", str(log), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    best = min((r for r in read_log(log).records if r.ok), key=lambda r: r.median)
    assert data["decisions"] == best.decisions
    assert run(["bench", *MATMUL, "--log", str(log)]) == 0
    assert "times the speed of NumPy" in capsys.readouterr().out


def test_log_show_lists_records_and_skips_torn_lines(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torn = tmp_path / "torn"
    torn.write_bytes(log.read_bytes() + b'{"schema": 1, "work')
    assert run(["log", "show", str(torn), "--limit", "2"]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 3
    assert "matmul(24, 40, 16, float32)" in out
    assert "skipped 1 torn line" in err
    assert run(["log", "show", str(log), "--json"]) == 0
    assert [json.loads(line)["schema"] for line in capsys.readouterr().out.splitlines()] == [SCHEMA] * 6


def test_log_best_prints_the_schedule(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "best", str(log)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("# matmul(24, 40, 16, float32), ")
    assert "s['C'].vectorize" in out


def test_log_merge_writes_every_record_once(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    merged = tmp_path / "merged"
    assert run(["log", "merge", str(log), str(log), "-o", str(merged)]) == 0
    assert "6 records from 2 logs, 6 duplicates dropped" in capsys.readouterr().out
    assert set(map(repr, read_log(merged).records)) == set(map(repr, read_log(log).records))


def test_report_writes_a_page(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["report", str(log)]) == 0
    out, err = capsys.readouterr()
    assert re.search(r"matmul\(24, 40, 16, float32\): 6 trials, best [\d.]+ .s\nwrote log.html", out)
    assert err == ""
    page = (tmp_path / "log.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert re.search(r"Best so far, over [\d:]+ and 6 trials", page)


def test_report_prints_figures_for_machines(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    assert run(["report", str(log), "--json", "--workload", "matmul", "-o", str(page)]) == 0
    (search,) = json.loads(capsys.readouterr().out)["searches"]
    assert (search["workload"], search["trials"]) == ("matmul(24, 40, 16, float32)", 6)
    assert " = s.sample_choice(" in search["schedule"]
    assert "kernel main" in search["loops"]
    assert page.exists()


def test_a_second_is_enough_for_a_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    assert run(["tune", *MATMUL, "--seconds", "0.01", "--log", str(log), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["trials"], found["best"]["gflops"] > 0) == (1, True)
    assert set(found["phases"]) == {"reading", "building", "timing"}
    assert [record.sketch for record in read_log(log).records] == ["library"]


def test_tune_writes_a_page_at_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    arguments = ["tune", f"{OPERATORS}:max_of_min", "--args", "7,19,5,int32", "--threads", "1", "--trials", "2"]
    assert run([*arguments, "--log", str(tmp_path / "log"), "--report", str(page), "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["messages"] == {}
    assert err == f"wrote {page}\n"
    assert "kernel main" in page.read_text(encoding="utf-8")  # its own file was loaded by the tuner already


def test_target_shows_what_was_detected_and_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["target"]) == 0
    out = capsys.readouterr().out
    for label in ("cores", "vectors", "caches", "float32 peak", "L2 bandwidth", "memory bandwidth"):
        assert label in out
    assert run(["target", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["measured"]["gflops"] > 0
    assert found["per_cycle"]
    assert isinstance(found["doubts"], list)
    assert run(["target", "interpreter"]) == 0
    assert "peak" not in capsys.readouterr().out


def test_target_says_what_is_doubtful(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    doubtful = Rates(1, {"fma float32x16": 3.7, "L1": 200.0, "L2": 5.0, "memory": 10.0}, ("L2 came out slower",))
    monkeypatch.setattr("tensorlang.autotune.measuring.jobs.measure_rates", lambda threads: doubtful)
    assert run(["target"]) == 0
    assert re.search(r"^doubtful +L2 came out slower$", capsys.readouterr().out, re.MULTILINE)
    assert run(["target", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["doubts"] == ["L2 came out slower"]


def test_more_threads_than_cpus_are_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["target", "--threads", "999"]) == 2
    assert (
        f"this process may use {available_cores()} CPUs, and 999 threads are to be measured" in capsys.readouterr().err
    )
    log = str(tmp_path / "log")
    assert run(["bench", "matmul", "--shape", "8,8,8", "--threads", "999", "--log", log]) == 2
    warning, error = capsys.readouterr().err.splitlines()
    assert warning.startswith(f"warning: --threads 999, and this process may use {available_cores()} CPUs")
    assert error == f"error: no such log: {log}"


def test_ctrl_c_while_the_command_is_imported_is_one_line(tmp_path: Path) -> None:
    slow = tmp_path / "click.py"
    slow.write_text("raise KeyboardInterrupt\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])}
    ended = subprocess.run(
        [sys.executable, "-m", "tensorlang", "target"], env=environment, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "error: stopped\n")


def test_target_shows_the_limits_of_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["target", "cuda -arch=sm_90a"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^device +\S", out, re.MULTILINE) and "vectors" not in out
    assert re.search(r"^threads a block +1024\n.*\n^shared memory +227 KiB a block$", out, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tune", "matmull", "--shape", "8,8,8"], "unknown operator 'matmull'; did you mean matmul?"),
        (["tune", "matmul"], "matmul wants the shape M,N,K as positive integers, got nothing"),
        (["tune", "matmul", "--shape", "8,8"], "got 8,8"),
        (["tune", "matmul", "--shape", "8,b,8"], "'b' is not a positive integer"),
        (["tune", "matmul", "--shape", "8,-8,8"], "'-8' is not a positive integer"),
        (["tune", "matmul", "--shape", "8,8,8", "--dtype", "floot32"], "unknown dtype 'floot32'"),
        (["tune", "matmul", "--args", "8,8,8"], "give matmul its --shape"),
        (
            ["tune", "matmul", "--shape", "8,8,8", "--option", "stride=2"],
            "matmul has no option 'stride'; it has precision=full",
        ),
        (["tune", "conv2d", "--shape", "1,4,8,8,4,3", "--option", "stride"], "--option takes NAME=VALUE"),
        (["tune", "conv2d", "--shape", "1,4,8,8,4,3", "--option", "strides=2"], "did you mean stride? It has stride=1"),
        (["tune", "nowhere.py:f", "--option", "n=8"], "give your function its --args"),
        (["tune", "nowhere.py:f"], "no such file: nowhere.py"),
        (["tune", "nowhere.py:f", "--shape", "8"], "give your function its --args"),
        (["tune", "matmul", "--shape", "8,8,8", "--target", "abacus"], "unknown target kind 'abacus'"),
        (["tune", "matmul", "--shape", "8,8,8", "--trials", "0"], "0 is not in the range"),
        (["tune", "matmul", "--shape", "8,8,8", "--log", "/no/such/folder/log"], "cannot write /no/such/folder/log"),
        (["bench", "matmul", "--shape", "8,8,8", "--log", "/no/log"], "no such log: /no/log"),
        (["bench", "matmul", "--shape", "8,8,8"], "no such log: tensorlang-tuning.jsonl"),
        (["tune", *MATMUL, "--report", "/no/such/folder/page"], "cannot write /no/such/folder/page"),
        (["report", "/no/log"], "no such log: /no/log"),
        (["report"], "Missing argument 'FILES...'"),
        (["log", "show", "/dev/null/x"], "cannot read /dev/null/x"),
        (["log", "merge", "/no/log", "-o", "/tmp/x"], "no such log: /no/log"),
        (["target", "abacus"], "unknown target kind 'abacus'"),
        (["tun"], "No such command 'tun'"),
    ],
)
def test_mistakes_get_one_line_and_code_2(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    errors = [line for line in err.splitlines() if not line.startswith(("tuning ", "reading: "))]
    assert len(errors) == 1
    assert errors[0].startswith("error: ")
    assert message in errors[0]
    assert out == ""


def test_what_does_not_fit_into_memory_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*_: object) -> None:
        raise MemoryError("Unable to allocate 298. GiB")

    monkeypatch.setattr("tensorlang.cli.tune.make_task", exhausted)
    assert run(["tune", *MATMUL]) == 1
    assert capsys.readouterr().err == "error: this machine has not enough memory: Unable to allocate 298. GiB\n"


def test_an_output_that_is_full_is_one_line_and_odd_names_are_printed(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Path("/dev/full").open("w") as full, monkeypatch.context() as patched:
        patched.setattr("sys.stdout", full)
        assert run(["log", "best", str(log)]) == 1
        with contextlib.suppress(OSError):
            full.close()
    assert capsys.readouterr().err == "error: No space left on device\n"
    with (tmp_path / "out").open("w", encoding="utf-8") as out, monkeypatch.context() as patched:
        patched.setattr("sys.stdout", out)
        assert run(["log", "merge", str(log), "-o", f"{tmp_path}/\udcff"]) == 0
    assert "\\udcff: 6 records from 1 log" in (tmp_path / "out").read_text()


@pytest.mark.parametrize("group", [[], ["log"]])
def test_a_group_alone_shows_its_commands(group: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    run(group)
    shown = "".join(capsys.readouterr())
    assert shown.startswith("Usage: ")
    assert "error" not in shown


def test_help_is_no_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    assert "tune" in capsys.readouterr().out
    assert run(["--version"]) == 0


def _start(log: Path, command: Sequence[str] = (sys.executable, "-m", "tensorlang")) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*command, "tune", *MATMUL, "--trials", "500", "--log", str(log)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    )


def _wait_for_records(log: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while not log.exists() or log.read_bytes().count(b'"schema"') < count:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.usefixtures("own_caches")
def test_ctrl_c_keeps_what_was_measured_and_says_how_to_go_on(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with _start(log, COMMAND) as process:
        _wait_for_records(log, 4)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    kept = len(read_log(log).records)
    assert process.returncode == 130
    assert f"stopped after {kept} new trials" in err
    assert f"go on with: tensorlang tune {' '.join(MATMUL)} --trials 500 --log {log}" in err
    assert "tensorlang" in out
    assert run(["tune", *MATMUL, "--trials", str(kept + 1), "--log", str(log), "--json"]) == 0
    assert len(read_log(log).records) == kept + 1


def test_a_killed_tuner_leaves_no_worker_behind_and_a_readable_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with _start(log) as process:
        _wait_for_records(log, 2)
        workers = _children(process.pid)
        process.kill()
    assert workers
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert len(read_log(log).records) >= 2


def _children(pid: int) -> list[int]:
    listed = list(Path("/proc").glob(f"{pid}/task/*/children"))  # any thread may have started them
    if not listed:
        pytest.skip("needs /proc")
    return [int(word) for path in listed for word in path.read_text().split()]


def test_a_library_operator_takes_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    arguments = ["conv2d", "--shape", "1,4,9,9,6,3", "--option", "stride=2,1", "--option", "groups=2", "--threads", "1"]
    assert run(["tune", *arguments, "--trials", "2", "--log", str(log), "--json"]) == 0
    assert (
        json.loads(capsys.readouterr().out)["best"]["workload"]
        == "conv2d(1, 4, 9, 9, 6, 3, float32, stride=(2, 1), groups=2)"
    )
    assert run(["bench", *arguments, "--log", str(log), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["comparison"]["competitor"].startswith("NumPy")
    assert run(["log", "validate", str(log)]) == 0
    assert "1 legal" in capsys.readouterr().out
    assert run(["bench", *arguments[:3], "--threads", "1", "--log", str(log)]) == 2
    assert "has no record of conv2d(1, 4, 9, 9, 6, 3, float32)" in capsys.readouterr().err


def test_bench_says_which_record_it_skips(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    best = min((r for r in read_log(log).records if r.ok), key=lambda r: r.median)
    spoilt = tmp_path / "log"
    with LogWriter(spoilt) as writer:
        writer.append(best)
        writer.append(replace(best, trace=[{"step": "bend"}], seconds=(1e-12,)))
    assert run(["bench", *MATMUL, "--log", str(spoilt), "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["decisions"] == best.decisions
    assert re.fullmatch(r"warning: bench_best skips the record of .* is refused: unknown schedule step 'bend'.*\n", err)
