"""What kernels take at least on a machine, and the file for Perfetto."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang.networks import from_onnx, roofline
from tensorlang.networks.compiling import compile_network
from tensorlang.networks.model import Model
from tensorlang.profiling import machine
from tensorlang.target import Target
from tensorlang.target.rates import Rates
from tests.networks.models import block, drawn, model, node

LEVELS = {"L1": 400.0, "L2": 200.0, "L3": 100.0, "memory": 10.0}
UNITS = {"fma float32x8": 4.0, "fma float32x16": 3.0, "fma float64x8": 3.0, "dot int8x64": 2.0}
RATES = Rates(1, {"clock": 3.0, **UNITS, **LEVELS})
PEAK = 2 * 16 * 3e9


@pytest.fixture(autouse=True)
def rates(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine that everybody knows."""
    monkeypatch.setattr(machine, "undisturbed_rates", lambda threads, kept: RATES)
    yield


def compiled(proto: Any) -> Model:
    """A network for a CPU whose caches are known."""
    network = compile_network(from_onnx(proto), "llvm -num-cores=1")
    assert len(Target("llvm").caches) == 3
    return network


def test_arithmetic_or_what_is_read_binds() -> None:
    network = compiled(block())
    convolution, second, *_ = network.profile(drawn(1, 6, 8, 8), repeat=1, roofline=True)
    assert convolution.limit == machine.Limit(convolution.operations / PEAK, "compute")
    assert convolution.share == convolution.limit.seconds / convolution.seconds
    (relu,) = compiled(model([node("Relu", "x", "y")], {"x": (384,)}, "y")).profile(drawn(384), repeat=1, roofline=True)
    assert relu.limit is not None and relu.limit.binds == "L2"
    assert relu.bytes == 4 * (384 + 384) and relu.limit.seconds == pytest.approx(relu.bytes / 200e9)
    assert second.to_json()["limit"]["binds"] in ("compute", "L2")


def test_a_library_is_one_kernel_of_floats(tmp_path: Path) -> None:
    network = compiled(block())
    made = network.export(tmp_path / "net", formats=("so",))
    (row,) = tensorlang.load(made.files["so"]).profile(drawn(1, 6, 8, 8), repeat=1, roofline=True)
    assert row.limit == machine.Limit(sum(step.operations for step in network.steps) / PEAK, "compute")


def test_of_a_table_only_the_rows_count_that_are_read() -> None:
    nodes = [node("Gather", "table i", "g", axis=0), node("Neg", "g", "y")]
    proto = model(nodes, {"i": (3,)}, "y", {"table": drawn(1000, 8)}, dtypes={"i": np.int64})
    (row,) = compiled(proto).profile(np.array([1, 2, 3]), repeat=1, roofline=True)
    assert row.bytes < 3 * 8 * 4 * 4


@pytest.mark.parametrize(
    ("kinds", "peak"), [(("float32", "int64"), PEAK), (("float64",), 48e9), (("int8", "int32"), 256e9)]
)
def test_units_by_what_is_computed(kinds: tuple[str, ...], peak: float) -> None:
    assert machine.Machine(RATES, ()).operations(kinds) == peak


def test_weights_come_from_where_all_of_them_are() -> None:
    reads = roofline.Reads(LEVELS, [("L1", 100.0), ("L2", 1000.0), ("L3", 1e5)])
    assert [reads.level(size) for size in (10, 1000, 1001, 1e6)] == ["L2", "L2", "L3", "memory"]
    assert reads.seconds(50, 1e6) == 5e-9


def test_a_trace_has_runs_and_kernels_in_time(tmp_path: Path) -> None:
    network = compiled(block())
    rows = network.profile(drawn(1, 6, 8, 8), repeat=3, roofline=True, trace=tmp_path / "t.json")
    told = json.loads((tmp_path / "t.json").read_text())
    named, *slices = told["traceEvents"]
    assert named["args"] == {"name": "network small"}
    runs, kernels = ([s for s in slices if (s["cat"] == "run") is wanted] for wanted in (True, False))
    assert [s["name"] for s in kernels] == [row.stage for row in rows] * 3 and len(runs) == 3
    assert all(s["ph"] == "X" and s["dur"] > 0 and s["pid"] == s["tid"] == 1 for s in slices)
    ends = [s["ts"] + s["dur"] for s in kernels]
    assert runs[0]["ts"] == 0 and all(end <= s["ts"] + 1e-6 for end, s in zip(ends, kernels[1:], strict=False))
    for run, last in zip(runs, kernels[len(rows) - 1 :: len(rows)], strict=True):
        assert run["ts"] + run["dur"] == pytest.approx(last["ts"] + last["dur"])
    first = kernels[0]["args"]
    assert first["node"] == "the c1" and first["limit"]["binds"] == "compute"
    assert first["share"] == pytest.approx(first["limit"]["seconds"] / first["seconds"])
    assert min(s["dur"] for s in kernels[:: len(rows)]) == pytest.approx(rows[0].seconds * 1e6)
