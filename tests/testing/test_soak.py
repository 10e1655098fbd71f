"""Soaks: cases are known by their seeds, faults are found, told and run again, and processes may die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tensorlang import config
from tensorlang.errors import ArgumentError, DefinitionError, InternalError
from tensorlang.ir import threads
from tensorlang.testing import check
from tensorlang.testing.soak import comparing
from tensorlang.testing.soak.case import Case, Outcome, Wrong, judged, kind_of, run_case
from tensorlang.testing.soak.counts import Counts, last_line
from tensorlang.testing.soak.kinds import KINDS, known
from tensorlang.testing.soak.running import Plan, Watcher, soak
from tensorlang.testing.soak.worker import Bounds, Ended

ROOT = Path(__file__).parents[2]
FAULTS = "tests.testing.soak_faults"
FIRST = dict.fromkeys(KINDS, range(5, 7)) | {"calls": range(5, 12)}


def told(kind: str, seed: int) -> list[str]:
    """What a case draws; it is not run."""
    texts: list[str] = []

    def tell(text: str) -> None:
        texts.append(text)
        raise Wrong("enough")

    run_case(kind_of(KINDS[kind]), seed, tell)
    return texts


@pytest.mark.parametrize("kind", KINDS)
def test_a_case_is_known_by_its_seed(kind: str) -> None:
    drawn = [told(kind, seed) for seed in (3, 4, 3)]
    assert drawn[0] == drawn[2] != drawn[1] and len(drawn[0]) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_few_cases_are_right(kind: str) -> None:
    function = kind_of(KINDS[kind])
    reports = [run_case(function, seed, lambda text: None) for seed in FIRST[kind]]
    assert not [r.traceback for r in reports if r.outcome.is_fault]
    assert Outcome.OK in [r.outcome for r in reports]


@pytest.mark.parametrize("kind", ["programs", "ordered", "devices", "records"])
def test_a_kernel_that_does_nothing_is_wrong(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (check, comparing):
        monkeypatch.setattr(module, "build", lambda *args, **options: lambda *arrays: None)
    monkeypatch.setattr(threads, "run", lambda *args, **options: None)
    found = Counter(run_case(kind_of(KINDS[kind]), seed, lambda text: None).outcome for seed in range(5, 8))
    assert found[Outcome.WRONG]
    assert found[Outcome.OK] <= (kind == "ordered")  # a hybrid operation may have nothing to do


def test_errors_are_told_apart() -> None:
    assert judged(InternalError("x")) is Outcome.INTERNAL_ERROR
    assert judged(ArgumentError("x")) is Outcome.REFUSED
    assert judged(Wrong("x")) is Outcome.WRONG
    assert judged(MemoryError()) is Outcome.MEMORY
    assert judged(RecursionError()) is Outcome.RAW_ERROR
    assert judged(AssertionError("of the compiler")) is Outcome.RAW_ERROR


def test_the_last_line_says_what_happened() -> None:
    text = "Traceback (most recent call last):\n  File x\ntensorlang.errors.InternalError: this is\nmore of it\n"
    assert last_line(text) == "tensorlang.errors.InternalError: this is"
    assert last_line("stack\nthe process died: signal SIGSEGV") == "the process died: signal SIGSEGV"


def test_a_kind_is_in_the_table_or_somebodys_own() -> None:
    assert list(known(())) == list(KINDS)
    assert known(("calls", "a:b")) == {"calls": KINDS["calls"], "a:b": "a:b"}
    with pytest.raises(DefinitionError, match="unknown kind 'call'; known: programs, "):
        known(("call",))


def test_processes_that_fail_are_told_and_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker: each fault is of the case that it ran, and the next case has a new process where it has to."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    kinds = known([f"{FAULTS}:{name}" for name in ("killed", "endless", "raising")])
    ends: list[Ended] = []
    plan = Plan(kinds, 0, tmp_path / "out", cases=4, bounds=Bounds(seconds=1.0))
    counts = soak(plan, Watcher(fault=lambda fault, ended: ends.append(ended)))
    found = {kind.partition(":")[2]: dict(outcomes) for kind, outcomes in counts.outcomes.items()}
    assert found["killed"] == {Outcome.CRASH: 1, Outcome.OK: 3}
    assert found["endless"] == {Outcome.HANG: 1, Outcome.OK: 3}
    assert found["raising"] == dict.fromkeys(
        (Outcome.INTERNAL_ERROR, Outcome.RAW_ERROR, Outcome.MEMORY, Outcome.REFUSED), 1
    )
    texts = {ended.report.outcome: ended.report.traceback for ended in ends}
    assert "signal SIGSEGV" in texts[Outcome.CRASH] and "in killed" in texts[Outcome.CRASH]
    assert "in endless" in texts[Outcome.HANG]
    assert len(list((tmp_path / "out").iterdir())) == len(ends) == 5
    (crash,) = (tmp_path / "out").glob("*crash.txt")
    assert f"again: {Case(f'{FAULTS}:killed', 0).command}\n" in crash.read_text()
    assert "drawn:\nabout to be killed" in crash.read_text()
    assert config.get("cache_dir") and "PYTHONHASHSEED" not in os.environ


def command(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command line of python."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_a_fault_is_found_and_its_command_finds_it_again(tmp_path: Path) -> None:
    given = ["-m", "tensorlang.testing", "soak", "--kinds", f"{FAULTS}:sometimes_wrong", "--workers", "1"]
    done = command([*given, "--seed", "1", "--cases", "6", "--json"], tmp_path)
    data: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == 1 and data["cases"] == 6 and data["failed"] == 2
    (fault,) = data["faults"]  # two of one line
    assert fault["count"] == 2 and fault["seed"] == 3 and fault["line"].endswith("C[3] is 1, and should be 2")
    assert "program 3" in (tmp_path / fault["file"]).read_text()
    again = command(fault["command"].split()[1:], tmp_path)
    assert again.returncode == 1
    assert "C[3] is 1, and should be 2" in again.stdout and "1 cases, 1 wrong or worse" in again.stdout


def test_ctrl_c_ends_with_the_table_so_far(tmp_path: Path) -> None:
    given = ["-m", "tensorlang.testing", "soak", "--kinds", f"{FAULTS}:endless", "--workers", "1", "--seed", "0"]
    with subprocess.Popen(
        [sys.executable, *given, "--seconds", "60"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stderr.readline() == "from seed 0 on, 1 worker\n"
        process.send_signal(signal.SIGINT)
        said = process.stdout.read()
        assert process.wait(20) == 0
        assert "0 cases, 0 wrong or worse, stopped" in said and "Traceback" not in process.stderr.read()


def test_counts_are_of_a_seed() -> None:
    assert Counts(7, {"calls": Counter()}).to_json()["kinds"]["calls"]["ok"] == 0
