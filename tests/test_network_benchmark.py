"""The benchmark of networks, on a tiny one beside onnxruntime, and the weights that its models get."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import tensorlang
from benchmarks import network_models, networks
from benchmarks.__main__ import main
from benchmarks.contestant import Absent
from benchmarks.network_models import NetworkModel, randomized
from benchmarks.network_report import PAGE
from benchmarks.workloads import Goal
from tests.networks.models import block, model, node, onnx


def tiny(goal: float = 1e-9, needs: tuple[str, ...] = ()) -> NetworkModel:
    return NetworkModel("tiny", Goal(goal, goal), lambda path: onnx.save(block(), path), needs)


def write(folder: Path) -> Path:
    onnx.save(block(), folder / "block.onnx")
    return folder / "block.onnx"


def test_a_network_beside_a_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(networks, "chosen", lambda pattern: [tiny(), tiny(needs=("no_such_package",))])
    out = tmp_path / "result.json"
    done = CliRunner().invoke(
        main,
        ["networks", "--threads", "1", "--peer", "onnxruntime", "--rounds", "1", "--json", str(out)],
        catch_exceptions=False,
    )
    assert done.exit_code == 0, done.output
    result = json.loads(out.read_text())
    assert result["missing"] == {"tiny": "not installed: no_such_package"} and result["threads"] == 1
    (found,) = result["networks"]
    names = {"tensorlang", "onnxruntime"}
    assert set(found["seconds"]) == set(found["starts"]) == set(found["memory"]) == names
    assert found["met"] and result["met"] and found["best_peer"] == "onnxruntime" and found["ratio"] > 0
    assert all(error < 1e-5 for error in found["errors"].values())
    assert all(len(starts) == 2 and min(starts) > 0 for starts in found["starts"].values())
    assert all(found["starts"][name][-1] >= found["prepared"][name] for name in names)
    assert min(found["memory"].values()) > 10e6
    assert f"{'onnxruntime':<18}" in done.output and result["cpu"]


def test_peers_and_networks_are_named() -> None:
    run: Any = CliRunner().invoke
    assert "there are resnet18" in run(main, ["networks", "--only", "no such network"]).output
    assert "wants PEER=PATH" in run(main, ["networks", "--python", "jax=python"]).output
    assert len({m.name for m in network_models.MODELS}) == len(network_models.MODELS)


def test_a_missing_package_is_said(tmp_path: Path) -> None:
    assert tiny(needs=("no_such_package",)).made(tmp_path) == Absent("not installed: no_such_package")
    made = tiny().made(tmp_path)
    assert not isinstance(made, Absent)
    assert made.operations > 2 * 64 * 10 * 6 * 9 and list(made.inputs()) == ["x0"]
    assert made.reference(made.inputs()).shape == (1, 5)


def test_weights_are_random_where_they_were_one_number() -> None:
    nodes = [
        node("ConstantOfShape", "s", "w"),
        node("ConstantOfShape", "t", "v"),
        node("Conv", "x w", "c"),
        node("BatchNormalization", "c v v v v", "n"),
        node("Dropout", "n", "d"),
        node("Softmax", "d", "y"),
    ]
    shapes = {"s": np.array([3, 2, 1, 1]), "t": np.array([3]), "more": np.zeros(2, np.float32)}
    proto = randomized(model(nodes, {"x": (1, 2, 4, 4)}, "y", shapes, opset=9))
    held = {t.name: onnx.numpy_helper.to_array(t) for t in proto.graph.initializer}
    assert set(held) == {"w", "v"} and len(np.unique(held["w"])) == 6 and held["v"].min() > 0
    assert [n.op_type for n in proto.graph.node] == ["Conv", "BatchNormalization", "Identity", "Identity"]
    assert proto.opset_import[0].version == 17 and [i.name for i in proto.graph.input] == ["x"]


def test_models_in_bytes_are_made_of_those_in_floats(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    made = network_models._in_bytes(tiny(), 1.1).made(tmp_path)
    assert not isinstance(made, Absent) and made.name == "tiny_int8" and made.goal.one == 1.1
    assert {p.name for p in tmp_path.iterdir()} == {"tiny_int8.onnx"}
    graph = onnx.load(made.path).graph
    assert {"QuantizeLinear", "DequantizeLinear", "Conv"} <= {n.op_type for n in graph.node}
    weights = [t for t in graph.initializer if t.data_type == onnx.TensorProto.INT8 and len(t.dims) == 4]
    assert len(weights) == sum(n.op_type == "Conv" for n in onnx.load(write(tmp_path)).graph.node)
    x = made.inputs()
    exact, rounded = made.reference(x), tensorlang.compile(made.path)(*x.values())
    assert np.abs(rounded - exact).max() < made.tolerance * np.abs(exact).max()


def test_the_detector_finds_boxes_in_the_image() -> None:
    torch: Any = pytest.importorskip("torch")
    from benchmarks.peers.torch_detector import Detector

    torch.manual_seed(0)
    with torch.inference_mode():
        made = Detector(64).eval()(torch.randn(2, 3, 64, 64))
    assert made.shape == (2, 84, 8 * 8 + 4 * 4 + 2 * 2)
    middles, scores = made[:, :2], made[:, 4:]
    assert middles.min() > -0.5 and middles.max() < 1.5 and 0 < scores.min() < 0.5 < scores.max() < 1
    assert scores.std(2).min() > 1e-3 and torch.isfinite(made).all()


@pytest.mark.parametrize("name", ["bert_base", "gpt2_small"])
def test_transformers_are_the_same_in_every_process(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch: Any = pytest.importorskip("torch")
    from benchmarks.peers import torch_modules

    monkeypatch.setattr(torch_modules, "LAYERS", 1)
    x = torch.randn(1, 5, torch_modules.WIDTH)
    with torch.inference_mode():
        found, again, changed = (
            torch_modules.module_of(name)(states) for states in (x, x, x + torch.eye(5)[4].reshape(1, 5, 1))
        )
    assert torch.equal(found, again) and found.shape == x.shape
    assert torch.allclose(found[:, 0], changed[:, 0], atol=1e-5) is (name == "gpt2_small")


def test_networks_are_chosen_by_name_or_by_what_names_hold() -> None:
    assert [m.name for m in network_models.chosen("resnet50")] == ["resnet50"]
    assert {m.name for m in network_models.chosen("resnet")} >= {"resnet18", "resnet50", "resnet50_int8"}


def test_the_page_has_the_stored_results(tmp_path: Path) -> None:
    stored = sorted((PAGE.parents[1] / "benchmarks" / "results").glob("*-networks-*.json"))
    (copy := tmp_path / PAGE.name).write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    done = CliRunner().invoke(main, ["networks-report", *map(str, stored), "--page", str(copy)], catch_exceptions=False)
    assert stored and done.exit_code == 0, done.output
    assert copy.read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")
