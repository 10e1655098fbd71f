"""Parts of a model in another library: those that are faster there, by time, with the same results and a report."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang.errors import ArgumentError
from tensorlang.networks import from_onnx
from tensorlang.networks.onnx import vendor
from tensorlang.networks.onnx.graphs import label_of
from tensorlang.networks.onnx.reading import read_model
from tests.networks.models import drawn, model, node, reference

pytest.importorskip("onnxruntime")
X = drawn(4, 16, seed=3)


def layers() -> Any:
    """Two layers with what follows them, side by side, and a sum of both."""
    weights = {"w": drawn(16, 24), "v": drawn(16, 24, seed=1), "b": drawn(24, seed=2)}
    nodes = [
        node("MatMul", "x w", "m"),
        node("Add", "m b", "a"),
        node("Relu", "a", "r"),
        node("MatMul", "x v", "n"),
        node("Tanh", "n", "t"),
        node("Mul", "r t", "p"),
        node("ReduceSum", "p axis", "y", keepdims=0),
    ]
    return model(nodes, {"x": (4, 16)}, "y r", weights | {"axis": np.array([1])})


def test_parts_that_are_faster_there_run_there_and_the_report_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def faster(other: Any, best: Any, inputs: Any) -> bool:
        asked.append(other)
        return True

    monkeypatch.setattr(vendor, "_least", lambda call: (call(), 0.0)[1])
    monkeypatch.setattr(vendor, "_is_faster", faster)
    made = tensorlang.compile(layers(), vendor="onnxruntime")
    assert asked == [made] and all(part.taken and part.there == 0.0 < part.here for part in made.vendor)
    labels = {label for part in made.vendor for label in part.nodes}
    assert labels == {label_of(n) for n in layers().graph.node} == {refusal.node for refusal in made.fallback}
    assert "onnxruntime takes 0.0 us for the nodes of this kernel, and we " in made.fallback[0].why
    assert str(made.vendor[0]).endswith("; runs onnxruntime")
    for got, want in zip(made(X), reference(layers(), X), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_parts_that_do_not_make_the_network_faster_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def slower(other: Any, best: Any, inputs: Any) -> bool:
        tried.append(len(other.fallback))
        return False

    monkeypatch.setattr(vendor, "_least", lambda call: 0.0)
    monkeypatch.setattr(vendor, "_is_faster", slower)
    made = tensorlang.compile(layers(), vendor="onnxruntime")
    assert tried == sorted(tried, reverse=True) and tried[0] == 7 and len(tried) == 2  # all, and the better half
    assert made.vendor and not made.fallback and not any(part.taken for part in made.vendor)
    assert str(made.vendor[0]).endswith("; runs here")


def test_what_is_slower_there_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vendor, "_least", lambda call: 1.0)
    monkeypatch.setattr(vendor, "_is_faster", lambda *models: pytest.fail("nothing was to be tried"))
    made = tensorlang.compile(layers(), vendor="onnxruntime")
    assert not made.fallback and {part.there for part in made.vendor} == {1.0}


def test_a_network_that_is_slow_is_told_from_one_that_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vendor, "_RACE", 0.0)
    fast = tensorlang.compile(model([node("Relu", "x", "y")], {"x": (4, 16)}, "y"))
    slow = tensorlang.compile(model([node("MatMul", "x w", "y")], {"x": (512, 512)}, "y", {"w": drawn(512, 512)}))

    class Sized:
        """Runs either one on what it takes."""

        def __init__(self, made: Any) -> None:
            self.made, self.inputs = made, [np.zeros(*s) for s in made.input_shapes.values()]

        def run(self, inputs: Any) -> Any:
            return self.made.run(self.inputs)

    small, large = Sized(fast), Sized(slow)
    assert vendor._is_faster(small, large, []) and not vendor._is_faster(large, small, [])  # type: ignore[arg-type]
    assert vendor._least(lambda: small.run([])) < vendor._least(lambda: large.run([]))


def test_nodes_that_onnxruntime_does_not_run_alone_are_no_parts() -> None:
    uneven = model([node("BitCast", "x", "y", to=6)], {"x": (4,)}, "y")
    read = read_model(layers())
    assert vendor._seconds_there(list(uneven.graph.node), {"y"}, {}, uneven, pytest.importorskip("onnxruntime")) is None
    part = [n for n in layers().graph.node if n.op_type == "Relu"]
    package = pytest.importorskip("onnxruntime")
    assert vendor._seconds_there(part, {"r"}, read.values, layers(), package) is not None


def test_what_vendor_takes() -> None:
    with pytest.raises(ArgumentError, match="vendor is 'onnxruntime' or None, got 'mkl'"):
        tensorlang.compile(layers(), vendor="mkl")
    with pytest.raises(ArgumentError, match="takes nodes of a model of ONNX as they are"):
        tensorlang.compile(layers(), vendor="onnxruntime", quantize="weights")
    for target in ("cuda -arch=sm_90a", "llvm -mcpu=cortex-a76"):
        with pytest.raises(ArgumentError, match="chooses by time on this machine, and cannot run"):
            tensorlang.compile(layers(), target, vendor="onnxruntime")
    with pytest.raises(ArgumentError, match="takes nodes of a model of ONNX"):
        tensorlang.compile(from_onnx(layers()), vendor="onnxruntime")
