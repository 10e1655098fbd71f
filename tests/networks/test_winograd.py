"""Convolutions by Winograd's algorithm in networks: where they are, what they compute, and what is said of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorlang import te, topi
from tensorlang.driver import lower
from tensorlang.errors import ArgumentError
from tensorlang.networks.compiling import compile_network
from tensorlang.networks.onnx.reading import from_onnx
from tensorlang.networks.winograd import Layer, best_tile, with_winograd
from tensorlang.target import parse
from tensorlang.te.program import canonical
from tensorlang.te.reference import evaluate
from tests.networks.models import drawn, model, node, reference

CPU = "llvm -mtriple=x86_64-linux-gnu -mcpu=znver4 -num-cores=1"


def residual(size: int = 20, channels: int = 32, features: int = 40) -> Any:
    """Two layers with a residual around them, then one by steps of 2 and one of few channels."""
    weights = {
        "w1": drawn(features, channels, 3, 3, seed=1) * 0.1,
        "b1": drawn(features, seed=2),
        "w2": drawn(channels, features, 3, 3, seed=3) * 0.1,
        "w3": drawn(channels, channels, 3, 3, seed=4) * 0.1,
        "w4": drawn(6, channels, 3, 3, seed=5) * 0.1,
    }
    nodes = [
        node("Conv", "x w1 b1", "c1", pads=[1, 1, 1, 1]),
        node("Relu", "c1", "r1"),
        node("Conv", "r1 w2", "c2", pads=[0, 1, 2, 1]),
        node("Add", "c2 x", "a"),
        node("Relu", "a", "r2"),
        node("Conv", "r2 w3", "c3", strides=[2, 2]),
        node("Conv", "r2 w4", "c4", auto_pad="SAME_UPPER"),
    ]
    return model(nodes, {"x": (1, channels, size, size - 3)}, "c3 c4", weights)


def test_layers_where_it_is_faster_take_it() -> None:
    """The first one does not: it reads the model's input, whose channels are not last."""
    proto, x = residual(), drawn(1, 32, 20, 17)
    compiled = compile_network(from_onnx(proto), "llvm -num-cores=1")
    for got, want in zip(compiled(x), reference(proto, x), strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-5 * np.abs(want).max())
    rows = {row.node: row for row in compiled.profile(x, repeat=1)}
    assert {name: row.algorithm for name, row in rows.items()} == {
        "the c1": "direct",
        "the c2": "winograd F(4x4, 3x3)",
        "the c3": "direct",
        "the c4": "direct",
    }
    assert rows["the c2"].to_json()["algorithm"] == "winograd F(4x4, 3x3)"
    strict = compile_network(from_onnx(proto), "interpreter", numerics="strict")
    assert {step.algorithm for step in strict.steps} == {"direct"}


def test_weights_are_transformed_ahead_but_for_those_that_several_read() -> None:
    x = te.placeholder((2, 16, 18, 32), name="x")
    held = {name: te.placeholder((3, 3, 32, 32), name=name) for name in "wv"}
    made = x
    for k, name in enumerate("wwv"):
        made = topi.conv2d(made, held[name], 1, 1, data_layout="NHWC", name=f"conv{k}")
    arrays = {name: drawn(3, 3, 32, 32, seed=k) * 0.1 for k, name in enumerate(held)}
    program = canonical([made])[0]
    turned, found, said = with_winograd(program, arrays, parse(CPU))
    assert found["w"] is arrays["w"] and found["v"].shape == (6, 6, 1, 32, 32)
    assert {*said} == {f"conv2{part}" for part in ("", "_columns", "_tiles", "_products", "_rows")}
    images = drawn(2, 16, 18, 32, seed=9)
    (wanted,) = evaluate(program, {"x": images, **arrays}).values()
    (got,) = evaluate(turned, {"x": images, **found}).values()
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())


def test_windows_over_some_of_the_channels_are_summed_as_they_are() -> None:
    """As in Res2Net, which convolves the first of four parts of its channels."""
    weights = {"w0": drawn(64, 32, 3, 3) * 0.1, "w1": drawn(32, 32, 3, 3, seed=1) * 0.1}
    nodes = [
        node("Conv", "x w0", "c0", pads=[1, 1, 1, 1]),
        node("Split", "c0", "a b", axis=1),
        node("Conv", "a w1", "c1", pads=[1, 1, 1, 1]),
        node("Add", "c1 b", "y"),
    ]
    proto, x = model(nodes, {"x": (1, 32, 20, 17)}, "y", weights), drawn(1, 32, 20, 17)
    wanted = reference(proto, x)[0]
    found = compile_network(from_onnx(proto), "llvm -num-cores=1")(x)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-5 * np.abs(wanted).max())


def test_what_is_estimated_follows_the_layer_and_the_machine() -> None:
    def tiles(size: int, channels: int, target: str = CPU) -> int:
        return best_tile(Layer(1, size, size, channels, channels), parse(target))

    layers = (56, 64), (28, 128), (14, 256), (7, 512), (56, 16), (56, 8)
    twice = CPU.replace("znver4", "sapphirerapids")  # multiply-adds in a cycle, so that weights come by too slowly
    assert [tiles(*layer) for layer in layers] == [4, 4, 4, 2, 4, 0]
    assert [tiles(*layer, twice) for layer in layers] == [4, 4, 2, 0, 4, 0]
    assert tiles(28, 64, CPU.replace("znver4", "haswell")) == 4
    batches = Layer(8, 14, 14, 256, 256), Layer(8, 7, 7, 512, 512)  # whose images take the weights one after another
    assert [best_tile(batch, parse(twice)) > 0 for batch in batches] == [True, False]


def test_tiles_that_are_multiplied_together_lie_in_different_sets_of_the_first_cache() -> None:
    def tiles(size: int, channels: int) -> str:
        data, weights = te.placeholder((1, size, size, channels)), te.placeholder((6, 6, 1, channels, 32))
        y = topi.conv2d_winograd(data, weights, 1, "NHWC")
        nest = str(lower(topi.schedule(y, target=CPU), [data, weights, y]))
        return next(line for line in nest.splitlines() if "conv2d_tiles: " in line)

    assert "6, 6, 272]" in tiles(28, 256)
    assert "6, 6, 64]" in tiles(28, 64)


def test_other_numerics_are_refused() -> None:
    with pytest.raises(ArgumentError, match="numerics are default or strict, got 'fast'"):
        compile_network(from_onnx(residual()), numerics="fast")
