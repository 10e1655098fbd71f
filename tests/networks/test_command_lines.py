"""Models on the command line: compiled to libraries, and timed beside onnxruntime."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorlang.networks.onnx import peers
from tests.cli.test_cli import run
from tests.networks.models import block, drawn, graph, model, node, onnx

CC = shutil.which("cc")


@pytest.fixture
def saved(tmp_path: Path) -> str:
    onnx.save(block(), tmp_path / "2 small-net.onnx")
    return str(tmp_path / "2 small-net.onnx")


@pytest.mark.skipif(CC is None, reason="needs a C compiler")
def test_compile_makes_a_library_that_does_what_onnxruntime_does(saved: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    np.save(tmp_path / "x.npy", drawn(1, 6, 8, 8))
    out = tmp_path / "out"
    assert run(["compile", saved, "-o", f"{out}/", "--formats", "c", "--input", f"{tmp_path / 'x.npy'}"]) == 0
    command = [str(CC), "small_net_test.c", "small_net.a", "-lm", "-o", "small_net_test"]
    subprocess.run(command, cwd=out, check=True)
    told = subprocess.run(["./small_net_test", ".", "0"], cwd=out, capture_output=True, text=True, check=True).stdout
    assert told == "small_net: as expected\n"
    assert run(["compile", saved, "-o", f"{out}/other", "--formats", "h", "--embed"]) == 0
    assert sorted(p.name for p in out.glob("other*")) == ["other.h", "other.json"]


def test_what_is_known_of_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    short, long = graph([node("Slice", "x one two", "a")], "a"), graph([node("Neg", "x", "b")], "b")
    weights = {"one": np.array([1]), "two": np.array([2]), "rate": np.array(8.0)}
    nodes = [node("Less", "r rate", "c"), node("If", "c", "y", then_branch=short, else_branch=long)]
    path = str(tmp_path / "m.onnx")
    proto = model(nodes, {"x": (3,), "r": ()}, "y", weights, dtypes={"r": np.float64})
    onnx.save(onnx.shape_inference.infer_shapes(proto), path)
    assert run(["inspect", path]) == 1 and "known={name: value}" in capsys.readouterr().out
    for rate, shape in (("4", [1]), ("16.5", [3])):
        assert run(["inspect", path, "--known", f"r={rate}"]) == 0
        capsys.readouterr()
        assert run(["run", path, "--known", f"r={rate}", "--check", "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["outputs"] == {"y": f"float32{shape}"} and told["errors"]["y"] == 0
    assert run(["compile", path, "-o", f"{tmp_path}/out", "--formats", "h,c", "--known", "r=4"]) == 0
    assert run(["run", path, "--known", "r=fast"]) == 2


@pytest.mark.parametrize("kind", ["empty", "torn.npz", "damaged.npz", "whole.npz"])
def test_files_that_are_no_array(saved: str, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "whole.npz", x=drawn(1, 6, 8, 8))
    whole = (tmp_path / "whole.npz").read_bytes()
    contents = {"empty": b"", "torn.npz": whole[:-50], "damaged.npz": whole.replace(whole[300:310], bytes(10))}
    (tmp_path / kind).write_bytes(contents.get(kind, whole))
    assert run(["run", saved, "--input", f"{tmp_path}/{kind}"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and f"{kind} {'holds arrays by name' if kind[0] == 'w' else 'is no array'}" in told


def test_models_in_8_bits(saved: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "samples"
    folder.mkdir()
    for seed in range(3):
        np.save(folder / f"{seed}.npy", drawn(1, 6, 8, 8, seed=seed))
    assert run(["quantize", saved, "--data", f"{folder}", "--keep", "the c1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["weights_bytes"] < told["weights_bytes_in_floats"]
    layers = {row["node"]: row["own_db"] for row in told["layers"]}
    assert layers["the c1"] is None and 20 < layers["the c2"] < 60
    assert run(["quantize", saved, "--data", f"{folder}", "--to", "weights"]) == 0
    assert "the c2 (Conv)" in capsys.readouterr().out
    out = tmp_path / "out"
    assert run(["compile", saved, "-o", f"{out}/net", "--formats", "h,c", "--quantize", f"{folder}"]) == 0
    assert "uint8" in (out / "net.json").read_text()
    capsys.readouterr()
    assert run(["run", saved, "--quantize", "weights", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outputs"] == {"y": "float32[1, 5]"}
    assert run(["bench", saved, "--quantize", f"{folder}", "--keep", "the c1", "--threads", "1", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["runtimes"]) == ["tensorlang"]
    assert run(["bench", "matmul", "--quantize", "weights"]) == 2
    assert run(["run", saved, "--keep", "the c1"]) == 2
    assert "give --quantize" in capsys.readouterr().err


def test_bench_takes_turns(saved: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    turns: list[Any] = []

    def turn(call: Any, seconds: float) -> float:
        turns.append(call)
        return float(len(turns))

    monkeypatch.setattr(peers, "_turn", turn)
    assert run(["bench", saved, "--peers", "--threads", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert turns[0::2] == turns[:1] * 7 and turns[1::2] == turns[1:2] * 7
    assert told["runtimes"]["tensorlang"]["median_seconds"] == 7
    assert told["runtimes"]["onnxruntime"]["median_seconds"] == 8
    assert told["runtimes"]["onnxruntime"]["error"] < 1e-5
    assert run(["bench", saved, "--dtype", "float32"]) == 2
    assert run(["bench", "matmul", "--shape", "8,8,8", "--peers"]) == 2


def test_outputs_are_held_against_each_other() -> None:
    def call(*values: float) -> peers.Call:
        return lambda: [np.array(values, np.float32)]

    found = peers.compared(call(1, 2), {"same": call(1, 2), "other": call(1, 2.5), "short": call(1)}, 1, 0)
    assert {name: timed.error for name, timed in found.items()} == {
        "tensorlang": 0,
        "same": 0,
        "other": 0.2,
        "short": float("inf"),
    }
    assert all(len(timed.seconds) == 1 and timed.median > 0 for timed in found.values())
