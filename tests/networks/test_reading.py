"""Reading ONNX: what is refused is said, all of it at once; bad files are clear errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorlang.errors import DefinitionError
from tensorlang.networks.onnx.control.rules import CONTROL
from tensorlang.networks.onnx.reading import from_onnx
from tensorlang.networks.onnx.rules import RULES
from tensorlang.networks.refusal import UnsupportedModel
from tensorlang.networks.report import inspect
from tensorlang.profiling import machine
from tests.cli.test_cli import run
from tests.networks.models import block, drawn, model, node, onnx
from tests.networks.test_profiling import RATES

UNKNOWN = [
    node("Relu", "x", "a"),
    node("NonZero", "a", "b"),
    node("Det", "x", "c"),
    node("Cast", "b", "d", to=1),
    node("ReduceSum", "d", "y"),
]


def test_all_refusals_are_told_at_once() -> None:
    proto = model(UNKNOWN, {"x": (3, 3)}, "y c")
    with pytest.raises(UnsupportedModel, match="has 2 nodes that are not taken") as caught:
        from_onnx(proto)
    assert [(r.node, r.op) for r in caught.value.refusals] == [("the b", "NonZero"), ("the c", "Det")]
    report = inspect(proto)
    assert report.skipped == ("the d", "the y") and report.kernels is None and not report.is_supported


def test_a_report() -> None:
    report = inspect(block())
    assert report.inputs == {"x": "float32[1, 6, 8, 8]"} and report.outputs == {"y": "float32[1, 5]"}
    assert report.kernels == 4 and report.is_supported
    row = report.rows[0]
    assert (row.op, row.nodes, row.operations) == ("Conv", 2, 2 * 64 * 10 * (54 + 6) + 640)


def test_open_shapes_are_asked_for() -> None:
    proto = model([node("Relu", "x", "y")], {"x": ("batch", 3)}, "y")
    with pytest.raises(DefinitionError, match=r"x has the shape \(batch, 3\); give its numbers"):
        from_onnx(proto)
    assert from_onnx(proto, {"x": (2, 3)}).input_shapes["x"][0] == (2, 3)
    with pytest.raises(DefinitionError, match="was given"):
        from_onnx(proto, {"x": (2, 4)})
    with pytest.raises(DefinitionError, match="the model has no inputs z; it has x"):
        from_onnx(proto, {"x": (2, 3), "z": (1,)})


@pytest.mark.parametrize("text", [b"", b"not a model", b"\x08\x07\x12\xff\xff\xff"])
def test_files_that_are_no_models(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(text)
    with pytest.raises(DefinitionError, match="is no ONNX model"):
        from_onnx(path)
    with pytest.raises(DefinitionError, match="there is no file"):
        from_onnx(tmp_path / "none.onnx")


def test_a_truncated_file(tmp_path: Path) -> None:
    path = tmp_path / "cut.onnx"
    path.write_bytes(block().SerializeToString()[:-700])
    with pytest.raises(DefinitionError):
        from_onnx(path)


def test_external_data_outside_of_the_folder_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(np.ones(4, np.float32).tobytes())
    folder = tmp_path / "model"
    folder.mkdir()
    proto = model([node("Add", "x w", "y")], {"x": (4,)}, "y", {"w": drawn(4)})
    (held,) = proto.graph.initializer
    onnx.external_data_helper.set_external_data(held, "../secret")
    held.ClearField("raw_data")
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(DefinitionError):
        from_onnx(path)


def test_opsets_and_missing_values() -> None:
    with pytest.raises(DefinitionError, match="opset 99 of the model is not one of 1 to"):
        from_onnx(model([node("Relu", "x", "y")], {"x": (2,)}, "y", opset=99))
    with pytest.raises(DefinitionError, match="no node of the model makes its outputs z"):
        from_onnx(model([node("Relu", "x", "y")], {"x": (2,)}, "z"))


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ([node("Reshape", "x s", "y")], "the shape|computed by the network"),
        ([node("Conv", "x w", "y", pads=[-1, 0, 0, 0])], "negative padding"),
        ([node("Transpose", "x", "y", perm=[0, 0, 1, 2])], "no order"),
        ([node("BatchNormalization", "x s s s s", "y", training_mode=1)], "in training mode"),
    ],
)
def test_nodes_that_do_not_fit_are_refused_with_a_reason(nodes: list[Any], why: str) -> None:
    inputs: dict[str, Any] = {"x": (1, 2, 4, 4), "w": (3, 2, 1, 1), "s": (2,)}
    proto = model(nodes, inputs, "y", dtypes={"s": np.int64 if nodes[0].op_type == "Reshape" else np.float32})
    with pytest.raises(UnsupportedModel, match=why):
        from_onnx(proto)


def test_the_page_names_the_operators() -> None:
    page = (Path(__file__).parents[2] / "docs" / "networks.md").read_text(encoding="utf-8")
    (line,) = [line for line in page.splitlines() if line.startswith("Abs, ")]
    assert line.rstrip(".").split(", ") == sorted({*RULES, *CONTROL}, key=str.lower)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "undisturbed_rates", lambda threads, kept: RATES)
    path = tmp_path / "block.onnx"
    path.write_bytes(block().SerializeToString())
    assert run(["inspect", str(path)]) == 0
    text = capsys.readouterr().out
    assert "kernels  4" in text and "Conv" in text
    np.save(tmp_path / "x.npy", drawn(1, 6, 8, 8))
    made = ["run", str(path), "--input", str(tmp_path / "x.npy"), "--output", str(tmp_path / "out"), "--profile"]
    assert run([*made, "--check", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["errors"]["y"] < 1e-5
    assert facts["outputs"] == {"y": "float32[1, 5]"} and len(facts["kernels"]) == 4
    assert all(row["share"] == row["limit"]["seconds"] / row["seconds"] for row in facts["kernels"])
    assert run(["run", str(path), "--trace", str(tmp_path / "trace.json")]) == 0
    assert " of compute " in capsys.readouterr().out
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert np.load(tmp_path / "out" / "y.npy").sum() == pytest.approx(1.0, abs=1e-4)
    path.write_bytes(model(UNKNOWN, {"x": (3, 3)}, "y").SerializeToString())
    assert run(["inspect", str(path)]) == 1
    assert "the b (NonZero): this operator is not known yet" in capsys.readouterr().out
    assert run(["run", str(path)]) == 2
