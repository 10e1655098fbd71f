"""Pools behind bytes that mean floats: the largest byte means the largest float."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorlang import te
from tensorlang.networks.compiling import compile_network, program_of
from tensorlang.networks.largest import with_largest_bytes
from tensorlang.networks.network import Network
from tensorlang.networks.onnx.reading import from_onnx
from tensorlang.te.program import canonical
from tensorlang.te.reference import evaluate
from tests.networks.models import model, node


def pooled(zero: Any, scale: float = 0.02, twice: bool = False, **attrs: Any) -> Network:
    """Bytes as floats, their largest in windows, and bytes again."""
    nodes = [
        node("DequantizeLinear", "x s z", "d"),
        node("MaxPool", "d", "p", **({"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4} | attrs)),
        node("QuantizeLinear", "p s z", "y"),
    ]
    nodes += [node("ReduceMax", "d", "w", keepdims=0)] if twice else []
    weights = {"s": np.float32(scale), "z": zero}
    return from_onnx(model(nodes, {"x": (1, 4, 9, 8)}, "y w" if twice else "y", weights, 19, {"x": zero.dtype}))


@pytest.mark.parametrize("zero", [np.uint8(0), np.uint8(131), np.int8(-7)])
def test_the_largest_byte_means_the_largest_float(zero: Any) -> None:
    network = pooled(zero)
    program, (wanted,) = program_of(network)
    made = with_largest_bytes(program)
    sums = [op.dtype for op in made.ops if getattr(op, "reduce_axes", ())]
    assert sums == [str(zero.dtype)]
    low, high = np.iinfo(zero.dtype).min, np.iinfo(zero.dtype).max
    x = np.random.default_rng(1).integers(low, high + 1, (1, 4, 9, 8)).astype(zero.dtype)
    x[:, 0] = low
    known = {name: array for name, array in network.weights.items() if name in program.by_name}
    given = {network.inputs[0].op.name: x} | known
    before, after = (evaluate(p, given)[wanted] for p in (program, made))
    np.testing.assert_array_equal(after, before)
    np.testing.assert_array_equal(compile_network(network)(x), before)


@pytest.mark.parametrize(
    "network",
    [
        pooled(np.uint8(3), scale=-0.5),
        pooled(np.uint8(3), twice=True),
        pooled(np.uint8(3), kernel_shape=[1, 1], strides=[2, 2]),
    ],
    ids=["falls", "is read elsewhere", "windows of nothing"],
)
def test_others_stay(network: Network) -> None:
    program, _ = program_of(network)
    assert with_largest_bytes(program).text == program.text


@pytest.mark.parametrize(("columns", "chosen"), [(0, False), (6, True)])
def test_the_largest_of_nothing_is_less_than_any_byte_means(columns: int, chosen: bool) -> None:
    """Of no elements, or of those that data choose."""
    codes, kept = te.placeholder((4, columns), "uint8", "codes"), te.placeholder((columns,), "int32", "kept")
    floats = te.compute((4, columns), lambda i, j: codes[i, j].astype("float32") * 0.5, name="floats")
    k = te.reduce_axis((0, columns), "k")
    where = kept[k] > 0 if chosen else None
    most = te.compute((4,), lambda i: te.max(floats[i, k], axis=k, where=where), name="most")
    program, _ = canonical([most])
    assert with_largest_bytes(program).text == program.text
