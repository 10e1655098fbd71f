"""The benchmark of kernels beside other libraries, on tiny sizes with NumPy as the only peer."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import cpu, records, workloads
from benchmarks.__main__ import main
from benchmarks.contest import Outcome, compete, largest_error
from benchmarks.contestant import Contestant
from benchmarks.limits import Machine, limit
from benchmarks.means import means
from benchmarks.operators import OPERATORS
from benchmarks.own import BUILDERS as OWN_BUILDERS
from benchmarks.peers.libraries import NUMPY, OWN, ROOT, Library
from benchmarks.peers.numpy_arrays import BUILDERS as NUMPY_BUILDERS
from benchmarks.peers.serve import Given
from benchmarks.workloads import WORKLOADS, Workload
from tensorlang.target import Target

TINY = (
    *workloads.odd(5, 7, 3),
    *workloads.batched(2, 5, 7, 3),
    *workloads.conv(9, 3, 8, 3, stride=2),
    *workloads.conv(6, 4, 4, 3, groups=4),
    workloads.row_softmax(5, 19, workloads.Goal(1.0, 1.0)),
    workloads.norm(5, 19),
    workloads.gelu(5, 7, 19),
    workloads.heads(2, 9, 4),
    workloads.narrow(8, "bfloat16"),
    workloads.narrow(8, "int8"),
    workloads.quantized_conv(9, 5, 20, 3, stride=2),
    workloads.stencil(12, 4),
    workloads.image_filter("blur", 9, workloads.Goal(1.0, 1.0)),
    workloads.image_filter("corners", 11, workloads.Goal(1.0, 1.0)),
)
RATES = {"gflops": 100.0, "l2_gbs": 80.0, "last_cache_gbs": 40.0, "memory_gbs": 10.0}


def given(workload: Workload) -> Given:
    return Given(workload.inputs(), workload.constant, workload.all_options, 1)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("workload", TINY, ids=lambda w: w.name)
def test_our_kernel_is_right(workload: Workload) -> None:
    result = OWN_BUILDERS[workload.operator](given(workload))()
    assert largest_error(result, workload.reference(workload.inputs())) <= workload.tolerance


@pytest.mark.parametrize("workload", [w for w in TINY if w.dtype == "float32"], ids=lambda w: w.name)
def test_numpy_is_right(workload: Workload) -> None:
    result = NUMPY_BUILDERS[workload.operator](given(workload))()
    assert largest_error(np.asarray(result), workload.reference(workload.inputs())) <= workload.tolerance


def test_every_workload_has_our_kernel_and_a_name_of_its_own() -> None:
    assert len({w.name for w in WORKLOADS}) == len(WORKLOADS)
    assert {w.operator for w in WORKLOADS} == set(OPERATORS) <= set(OWN_BUILDERS)


def test_operations_and_bytes() -> None:
    (matmul,) = workloads.chosen("matmul-512")
    assert matmul.operations == 2 * 512**3
    assert matmul.bytes == 3 * 4 * 512**2
    (bare, *_) = workloads.chosen("conv-224-")
    assert bare.operations == 2 * 112 * 112 * 64 * 3 * 7 * 7
    (int8,) = workloads.chosen("matmul-1024-int8")
    assert int8.bytes == 6 * 1024**2
    (layer,) = workloads.chosen("conv-56-64-256-1x1-int8")
    assert layer.bytes == 56 * 56 * 64 + 64 * 256 + 256 + 56 * 56 * 256


def test_patterns() -> None:
    assert [w.name for w in workloads.chosen("softmax-512x1000")] == ["softmax-512x1000"]
    assert all(w.name.endswith("-relu") for w in workloads.chosen("conv-*-relu"))
    assert len(workloads.chosen("conv-*-relu")) == 6


@pytest.mark.parametrize(
    ("name", "binds"),
    [("matmul-1024", "compute"), ("softmax-4096x4096", "memory"), ("softmax-512x1000", "last cache")],
)
def test_limits(name: str, binds: str) -> None:
    workload = next(w for w in WORKLOADS if w.name == name)
    target = replace(Target("llvm -mcpu=znver4"), caches=(32 << 10, 1 << 20, 32 << 20))
    found = limit(workload, RATES, Machine(target, 1))
    assert found.binds == binds
    if binds == "compute":
        assert found.seconds == workload.operations / 100e9


def test_narrow_types_have_faster_instructions_on_some_machines() -> None:
    (bfloat16,) = workloads.chosen("1024-bfloat16")
    with_them, without = (limit(bfloat16, RATES, Machine(Target(f"llvm -mcpu={c}"), 1)) for c in ("znver4", "haswell"))
    assert without.seconds == 2 * with_them.seconds


def test_largest_error() -> None:
    exact = np.array([1.0, -4.0])
    assert largest_error(np.array([1.0, -3.0]), exact) == 0.25
    assert largest_error(np.array([1.0, np.nan]), exact) == np.inf
    with pytest.raises(ValueError, match="shape"):
        largest_error(np.zeros(3), exact)


def outcome(ratio: float | None, group: str = "conv2d", **changed: Any) -> Outcome:
    figures: dict[str, Any] = {
        "workload": "w",
        "operator": "conv2d",
        "group": group,
        "operations": 1e9,
        "bytes": 1,
        "seconds": {"tensorlang": 0.5},
        "prepared": {},
        "errors": {},
        "absent": {},
        "rates": RATES,
        "limit_seconds": 0.375,
        "binds": "compute",
        "best_peer": "JAX",
        "ratio": ratio,
        "against": "",
        "goal": 1.0,
        "goal_of_peak": None,
    }
    return Outcome(**(figures | changed))


def test_goals() -> None:
    assert outcome(1.0).met
    assert not outcome(0.99).met
    assert outcome(None).met
    assert outcome(1.0, goal_of_peak=0.75).met
    assert not outcome(1.0, goal_of_peak=0.76).met
    assert not outcome(None, seconds={}).met


def test_means_are_of_groups() -> None:
    (mean,) = means([outcome(0.5), outcome(2.0), outcome(None), outcome(0.1, "softmax")])
    assert (mean.group, mean.count, mean.met) == ("conv2d", 2, True)
    assert mean.ratio == pytest.approx(1.0)


PROGRAM = """
import numpy as np
from benchmarks.peers.serve import Unsupported

def wrong(given):
    return lambda: given["A"] @ given["B"] + 1

def absent(given):
    raise Unsupported("not here")

def broken(given):
    raise RuntimeError("cannot be built")

def dies(given):
    import os
    return lambda: os._exit(3)

print("a library that talks")
BUILDERS = {"matmul": wrong, "softmax": absent, "layer_norm": broken, "dense_gelu": dies}
"""


@pytest.fixture
def bad(tmp_path: Path) -> Library:
    """A library of mistakes."""
    (tmp_path / "mistakes.py").write_text(PROGRAM, encoding="utf-8")
    return Library("bad", "Bad", "mistakes", (), {"PYTHONPATH": f"{ROOT}:{tmp_path}"})


def tiny(name: str) -> Workload:
    return next(w for w in TINY if w.name.startswith(name))


@pytest.mark.parametrize(
    ("name", "reason", "failed"),
    [
        ("matmul", "wrong result: off by", True),
        ("softmax", "not here", False),
        ("layer-norm", "RuntimeError: cannot be built", True),
        ("gelu", "Bad ended (exit status 3)", True),
        ("attention", "not written", False),
    ],
)
def test_a_library_without_a_right_result_has_no_figure(name: str, reason: str, failed: bool, bad: Library) -> None:
    machine = Machine(Target("llvm"), 1)
    said: list[str] = []
    with Contestant(bad, sys.executable, 1) as wrong, Contestant(NUMPY, sys.executable, 1) as right:
        found = compete(tiny(name), [wrong, right], 1, machine, said.append)
    assert set(found.seconds) == {"NumPy"}
    assert found.absent["Bad"].reason.startswith(reason)
    assert found.absent["Bad"].failed == failed
    assert bool(said) == failed


def test_a_missing_library_is_listed(tmp_path: Path) -> None:
    absent = Library("x", "X", "x", ("no-such-distribution",))
    assert absent.versions(sys.executable) == "not installed: no-such-distribution"
    assert "no interpreter" in str(absent.versions(str(tmp_path / "python")))
    assert OWN.versions(sys.executable) == {}
    assert NUMPY.versions(sys.executable) == {"numpy": np.__version__}


def test_a_run_and_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads, "WORKLOADS", (tiny("matmul"), tiny("softmax")))
    monkeypatch.setattr(cpu, "CORETYPES", ("",))
    out = tmp_path / "result.json"
    arguments = ["cpu", "--threads", "1", "--peer", "numpy", "--rounds", "2", "--json", str(out)]
    made = CliRunner().invoke(main, arguments)
    result = json.loads(out.read_text(encoding="utf-8"))
    assert made.exit_code == (0 if result["met"] else 1), made.output
    assert [set(w["seconds"]) for w in result["workloads"]] == [{"tensorlang", "NumPy"}] * 2
    for found in result["workloads"]:
        assert found["best_peer"] == "NumPy"
        assert found["ratio"] > 0
        assert found["share"] == pytest.approx(found["limit_seconds"] / found["seconds"]["tensorlang"])
    assert result["versions"]["numpy"] == np.__version__

    page = tmp_path / "page.md"
    page.write_text("before\n<!-- figures -->\nold\n<!-- end of figures -->\nafter\n", encoding="utf-8")
    assert CliRunner().invoke(main, ["report", str(out), "--page", str(page)]).exit_code == 0
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert len(re.findall(r"^\| softmax-5x19 \|", text, re.MULTILINE)) == 2
    picture = ElementTree.parse(tmp_path / "images" / "benchmarks-1.svg")
    circles = [node for node in picture.iter() if node.tag.endswith("circle")]
    assert len(circles) == 2 + 2 * 2  # the legend, and two libraries on two workloads


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "nothing"], "no workload is called like 'nothing'"),
        (["--threads", "100000"], "cores can be used"),
        (["--python", "torch"], "wants PEER=PATH"),
        (["--python", "pytorch=/x"], "wants PEER=PATH"),
    ],
)
def test_wrong_options(arguments: list[str], message: str) -> None:
    made = CliRunner().invoke(main, ["cpu", *arguments])
    assert made.exit_code == 2
    assert message in made.output


def test_a_page_without_marks_is_left_alone(tmp_path: Path) -> None:
    page, result = tmp_path / "page.md", tmp_path / "result.json"
    page.write_text("by hand\n", encoding="utf-8")
    result.write_text('{"threads": 1}', encoding="utf-8")
    made = CliRunner().invoke(main, ["report", str(result), "--page", str(page)])
    assert made.exit_code == 2
    assert page.read_text(encoding="utf-8") == "by hand\n"


def test_other_benchmarks_need_no_command() -> None:
    made = CliRunner().invoke(main, ["no-such-benchmark"])
    assert made.exit_code == 2
    assert "'overheads', 'verdicts', 'matmul'" in made.output


def test_lookups_are_timed_in_a_log_of_any_length() -> None:
    figures = {f.name: f for f in records.measure(60)}
    assert len(figures) == 6
    assert all(f.value > 0 for f in figures.values())
    assert any("opening the index" in name and f.goal == 1.0 for name, f in figures.items())
