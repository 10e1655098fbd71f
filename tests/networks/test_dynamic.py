"""Models of open sizes: each shape is compiled once, whoever asks, and the last ones stay."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang.errors import ArgumentError, DefinitionError
from tensorlang.networks import dynamic, starting
from tests.networks.models import drawn, model, node, onnx, reference

WIDTH = 6


def tagger() -> Any:
    """A cell over sequences of open length, with another input of the same batch, and pairs of rows."""
    weights = {"w": drawn(1, 16, WIDTH), "r": drawn(1, 16, 4), "pairs": np.array([-1, 2, 4]), "v": drawn(4, 3)}
    nodes = [
        node("LSTM", "x w r", "h", hidden_size=4),
        node("Squeeze", "h one", "s"),
        node("Add", "s z", "a"),
        node("MatMul", "a v", "m"),
        node("Reshape", "a pairs", "p"),
    ]
    weights["one"] = np.array([1])
    return model(nodes, {"x": ("time", "batch", WIDTH), "z": ("batch", 4)}, "m p", weights)


def inputs(time: int, batch: int) -> list[Any]:
    return [drawn(time, batch, WIDTH, seed=time), drawn(batch, 4, seed=batch)]


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The shapes that were compiled."""
    done: list[Any] = []

    def compile_model(*given: Any) -> Any:
        done.append(given[3])
        return starting.compile_model(*given)

    monkeypatch.setattr(dynamic, "compile_model", compile_model)
    return done


def test_shapes_are_compiled_when_they_are_met(compiled: list[Any]) -> None:
    proto = tagger()
    made = tensorlang.compile_dynamic(proto, kept=2)
    for time, batch in ((3, 2), (5, 2), (3, 2), (2, 4), (3, 2)):
        given = inputs(time, batch)
        for got, want in zip(made(*given), reference(proto, *given), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert [(s["x"][:2], s["z"][0]) for s in compiled] == [((3, 2), 2), ((5, 2), 2), ((2, 4), 4)]
    assert [shapes[0][:2] for shapes in made.shapes] == [(2, 4), (3, 2)]
    one, other = (made.for_shapes(*(v.shape for v in inputs(*sizes))) for sizes in ((3, 2), (2, 4)))
    assert {id(a) for a in one.weights.values()} & {id(a) for a in other.weights.values()}
    assert "x [time, batch, 6]" in repr(made) and "2 shapes" in repr(made)


def test_other_shapes_take_the_ranges_of_samples() -> None:
    weights = {"w": drawn(8, 3, 3, 3, seed=1) * 0.3, "v": drawn(5, 8, 3, 3, seed=2) * 0.2}
    nodes = [node("Conv", "x w", "c"), node("Relu", "c", "r"), node("Conv", "r v", "y", pads=[1] * 4)]
    proto = model(nodes, {"x": ("n", 3, "high", "wide")}, "y", weights)
    samples = [drawn(1, 3, 12, 9), drawn(1, 3, 7, 9, seed=1)]
    made = tensorlang.compile_dynamic(proto, quantize=tensorlang.Quantization(data=iter(samples)))
    x = np.concatenate([samples[0][:, :, :7, 1:9], samples[1][:, :, :, :8]])  # nothing is cut off
    exact = reference(proto, x)[0]
    assert 1e-4 < np.abs(made(x) - exact).max() / np.abs(exact).max() < 0.05
    assert any(dtype == "uint8" for _, dtype in made.for_shapes(x.shape).shapes.values())
    assert made(samples[0]).shape == (1, 5, 10, 7)


def test_threads_share_what_is_compiled(compiled: list[Any]) -> None:
    made = tensorlang.compile_dynamic(tagger())
    given = [inputs(time, 2) for time in (2, 3, 2, 3)] * 3
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda arrays: made(*arrays), given))
    assert sorted(shapes["x"][0] for shapes in compiled) == [2, 3]
    for arrays, outputs in zip(given, found, strict=True):
        np.testing.assert_array_equal(outputs[0], made(*arrays)[0])


def test_what_does_not_fit_is_told_and_tried_again(tmp_path: Path) -> None:
    made = tensorlang.compile_dynamic(tagger())
    x, z = inputs(3, 2)
    for given, why in (
        ([x], r"takes 2 inputs \(x, z\), got 1"),
        ([x[:, :, :5], z], r"x has the shape \(time=3, batch=2, 6\), got \(3, 2, 5\)"),
        ([x, z[:1]], r"z has the shape \(batch=2, 4\), got \(1, 4\)"),
        ([x.astype(np.float64), z], "is float32"),
    ):
        with pytest.raises(ArgumentError, match=why):
            made(*given)
    for _ in range(2):
        with pytest.raises(DefinitionError, match="number of elements"):
            made(*inputs(1, 1))
    assert made(x, z)[0].shape == (3, 2, 3)
    with pytest.raises(ArgumentError, match="at least one"):
        tensorlang.compile_dynamic(tagger(), kept=0)
    with pytest.raises(DefinitionError, match="there is no file"):
        tensorlang.compile_dynamic(tmp_path / "none.onnx")


def test_weights_beside_a_file_that_change(tmp_path: Path) -> None:
    path, weights = tmp_path / "m.onnx", tmp_path / "apart.bin"
    proto = model([node("Add", "x w", "y")], {"x": ("rows", WIDTH)}, "y", {"w": drawn(WIDTH)})
    onnx.save(proto, path, save_as_external_data=True, size_threshold=0, location=weights.name)
    made, content = tensorlang.compile_dynamic(path), weights.read_bytes()
    for rows in (2, 3):
        x = drawn(rows, WIDTH)
        np.testing.assert_array_equal(made(x), x + drawn(WIDTH))
    weights.write_bytes(content[::-1])
    with pytest.raises(DefinitionError, match="has changed since it was opened"):
        made(drawn(4, WIDTH))
    weights.unlink()
    with pytest.raises(DefinitionError, match="has changed since it was opened"):
        made(drawn(4, WIDTH))


def test_a_file_that_changes(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(tagger(), path)
    made, content, times = tensorlang.compile_dynamic(path), path.read_bytes(), path.stat()
    path.write_bytes(content.replace(b"time", b"tame"))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # as archives and copies set them
    with pytest.raises(DefinitionError, match="has changed since it was opened"):
        made(*inputs(2, 2))
    path.write_bytes(content)
    first = made(*inputs(2, 2))
    onnx.save(model([node("Relu", "x", "y")], {"x": ("time", "batch", WIDTH)}, "y"), path)
    np.testing.assert_array_equal(made(*inputs(2, 2))[0], first[0])
    with pytest.raises(DefinitionError, match="has changed since it was opened"):
        made(*inputs(3, 2))
