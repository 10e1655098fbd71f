"""The benchmark of the tuner, on a tiny product without TVM, and what its figures are made of."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import scoring, subjects, training, tuning, workloads
from benchmarks.__main__ import main
from benchmarks.searches import Search, Trial, search_own, search_tvm
from benchmarks.subjects import SUBJECTS, Subject
from benchmarks.tuning_figures import ALONE, ESTIMATE, FIRST, LIBRARY, figures
from tensorlang.autotune.search.pretrained import chosen_model
from tensorlang.topi import OPERATORS

TINY = Subject(workloads.odd(6, 32, 5)[0], "matmul", (6, 32, 5))
SEARCH = Search(tuple(Trial(*pair) for pair in ((1.0, None), (2.0, 4e-3), (3.0, 5e-3), (6.0, 1e-3))))


def test_a_search_knows_what_it_had_when() -> None:
    assert [SEARCH.within(s) for s in (0.5, 2.0, 100.0)] == [0, 2, 4]
    assert [SEARCH.best(n) for n in (0, 1, 3, 4, 99)] == [None, None, 1, 3, 3]
    assert SEARCH.per_minute(3) == 60
    assert SEARCH.per_minute(99) == 40
    assert Search(()).per_minute(64) == 0
    assert SEARCH.improvements() == [(2, 2.0, 4e-3), (4, 6.0, 1e-3), (4, 6.0, 1e-3)]
    assert Search(()).improvements() == []


def test_equal_schedules_are_timed_once() -> None:
    kernels, same = tuning.distinct({"a": [1], "b": None, "c": [1], "d": [2]})
    assert kernels == {"a": {"trace": [1]}, "b": {"trace": None}, "d": {"trace": [2]}}
    assert same == {"c": "a"}


def measured(name: str, seconds: dict[str, float], failed: int = 0) -> dict[str, Any]:
    searches = {"tensorlang": {"trials": 100, "per_minute": {"64": 300.0}}, "TVM": {"per_minute": {"64": 60.0}}}
    best = min((n for n in seconds if not n.startswith("TVM")), key=seconds.__getitem__)
    return {"workload": name, "seconds": seconds, "best": best, "searches": searches, "failures": {"crash": failed}}


def test_figures_have_goals() -> None:
    near = {LIBRARY: 1.02, FIRST: 1.1, ALONE: 1.3, "30 s": 1.08, "120 s": 1.0, "64 trials": 1.1, "TVM, 64 trials": 2.2}
    far = near | {"30 s": 1.2, "TVM, 64 trials": 1.1}
    made = figures([measured("near", near), measured("far", far, failed=4)], [30, 120], [64])
    met = {figure.name: figure.met for figure in made if figure.goal is not None}
    assert met == {
        "near: first pick, times the best known": True,
        "near: model alone, times the best known": False,
        "near: 30 s, times the best known": True,
        "near: 120 s, times the best known": True,
        "far: first pick, times the best known": True,
        "far: model alone, times the best known": False,
        "far: 30 s, times the best known": False,
        "far: 120 s, times the best known": True,
        "times the speed that TVM found, 64 trials, mean of 2": True,
        "times TVM's trials a minute, mean of 2": True,
        "wasted of 200 trials": False,
    }
    values = {figure.name: figure.value for figure in made}
    assert values["times the speed that TVM found, 64 trials, mean of 2"] == pytest.approx(2**0.5)
    assert values["wasted of 200 trials"] == 2


def test_what_was_never_found_is_missed() -> None:
    (first, *_) = figures([measured("x", {LIBRARY: 1.0})], [30], [64])
    assert first.value == float("inf") and not first.met


def test_subjects_are_operators_that_the_model_was_not_trained_on() -> None:
    assert len({s.name for s in SUBJECTS}) == len(SUBJECTS) == 5
    trained = set(training.PROGRAMS)
    for subject in SUBJECTS:
        assert (subject.operator, subject.sizes) not in trained
        task = subject.task(1)
        shapes = [tuple(int(str(n)) for n in t.shape) for t in task.inputs]
        assert shapes == list(subject.workload.shapes.values())
    for name, sizes in training.PROGRAMS:
        assert OPERATORS[name].tensors(sizes, "float32")


def test_candidates_drawn_for_training_are_spaces_of_one() -> None:
    drawn = training.drawn(TINY.task(1), 12)
    assert 0 < len(drawn) <= 12
    assert {sketch.size for sketch in drawn} == {1}
    assert len({sketch.name for sketch in drawn}) == len(drawn)
    assert all(len(sketch.sample(np.random.default_rng(0), 4)) == 1 for sketch in drawn)


def test_a_model_is_trained_from_searches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "PROGRAMS", (("matmul", (6, 32, 5)),))
    out = tmp_path / "model.ubj"
    arguments = ["train", "--keep", str(tmp_path), "--trials", "10", "--out", str(out)]
    made = CliRunner().invoke(main, arguments)
    assert made.exit_code == 0, made.output
    assert f"{out}: trained on 1 workloads" in made.output
    assert chosen_model(out) is not None
    again = CliRunner().invoke(main, [*arguments[:-4], "--trials", "0", "--out", str(out), str(tmp_path / "none")])
    assert again.exit_code == 2  # no such log


def test_a_run_and_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subjects, "SUBJECTS", (TINY,))
    monkeypatch.setattr(scoring, "SIZES", (32, 32, 32))
    monkeypatch.setattr(scoring, "TURNS", 1)
    out, keep = tmp_path / "result.json", tmp_path / "keep"
    arguments = ["tuning", "--threads", "1", "--seconds", "0.5", "--trials", "2,4", "--rounds", "1"]
    made = CliRunner().invoke(main, [*arguments, "--keep", str(keep), "--json", str(out)])
    result = json.loads(out.read_text(encoding="utf-8"))
    assert made.exit_code == (0 if all(f["met"] for f in result["figures"]) else 1), made.output
    (workload,) = result["workloads"]
    names = {LIBRARY, FIRST, ALONE, ESTIMATE, "2 trials", "4 trials"}
    assert names <= set(workload["seconds"]) <= names | {"0.5 s"}  # under load nothing may be ready so soon
    assert workload["absent"] == {}
    assert workload["seconds"][workload["best"]] == min(workload["seconds"].values())
    assert len((keep / f"{TINY.name}-1" / "tensorlang" / "log.jsonl").read_text(encoding="utf-8").split()) >= 4
    assert workload["searches"]["tensorlang"]["trials"] >= 4

    page = tmp_path / "page.md"
    page.write_text("before\n<!-- tuning -->\nold\n<!-- end of tuning -->\nafter\n", encoding="utf-8")
    told = CliRunner().invoke(main, ["tuning-report", str(out), "--page", str(page)])
    assert told.exit_code == 0, told.output
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert f"| {TINY.name} |" in text
    picture = ElementTree.parse(tmp_path / "images" / "tuning-1.svg")
    curves = [node for node in picture.iter() if node.tag.endswith("path") and node.get("fill") == "none"]
    assert len(curves) == 2  # against the time, and against the trials


def test_searches_that_are_kept_are_not_made_again(tmp_path: Path) -> None:
    told = [[1.0, 2e-3, ["a"], "ok"], [2.0, None, ["b"], "crash"], [3.0, 1e-3, ["c"], "ok"]]
    kept = {"asked": [30.0, 3], "trials": told}
    (tmp_path / "search.json").write_text(json.dumps(kept), encoding="utf-8")
    found = search_own(TINY.task(1), 30.0, 3, tmp_path)
    assert (found.traces, found.failures) == ((["a"], ["b"], ["c"]), {"crash": 1})
    assert found.search.best(3) == 2


def test_the_best_of_stored_results_takes_part(tmp_path: Path) -> None:
    stored = {"workloads": [{"workload": "a", "best_trace": [1]}, {"workload": "b", "best_trace": None}]}
    (tmp_path / "x-tuning-1.json").write_text(json.dumps(stored), encoding="utf-8")
    assert tuning.best_traces(tmp_path, 1) == {"a": [1]}
    assert tuning.best_traces(tmp_path, 2) == {}


def test_a_search_that_fails_says_why(tmp_path: Path) -> None:
    answer = search_tvm(TINY, 1, (2,), tmp_path / "tvm", sys.executable)
    assert isinstance(answer, str)
    assert "exit status 1: ModuleNotFoundError: No module named 'tvm'" in answer


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "nothing"], "no workload is called like 'nothing'"),
        (["--threads", "100000"], "cores can be used"),
        (["--seconds", "fast"], "numbers with commas between them, got 'fast'"),
        (["--trials", "0,64"], "numbers with commas between them, got '0,64'"),
        (["--tvm", sys.executable], "not installed: apache-tvm"),
    ],
)
def test_wrong_options(arguments: list[str], message: str) -> None:
    made = CliRunner().invoke(main, ["tuning", *arguments])
    assert made.exit_code == 2
    assert message in made.output
