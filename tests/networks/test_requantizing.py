"""Sums of residuals in models with QDQ nodes: the same bytes, whether or not bytes lie between their stages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorlang.networks.compiling import compile_network, program_of
from tensorlang.networks.groups import parts_of
from tensorlang.networks.onnx.reading import from_onnx
from tensorlang.networks.requantizing import without_bytes_between
from tensorlang.te.reference import evaluate
from tests.networks.models import Array, drawn, model, node


def rounded(name: str, scale: float, zero: Any) -> tuple[list[Any], dict[str, Array]]:
    """An array as bytes and back, under its name with `q` and with `d`."""
    pair = f"{name}_s {name}_z"
    nodes = [
        node("QuantizeLinear", f"{name} {pair}", f"{name}q"),
        node("DequantizeLinear", f"{name}q {pair}", f"{name}d"),
    ]
    return nodes, {f"{name}_s": np.float32(scale), f"{name}_z": zero}


def residual(zero: Any, other: bool = False) -> Any:
    """A sum of an array that is rounded and one that is given in floats, or rounded, too."""
    nodes, weights = rounded("a", 0.02, zero)
    more, held = rounded("b", 0.03, zero) if other else ([], {})
    last, ends = rounded("c", 0.05, zero)
    first = [node("Mul", "x k", "a"), node("Add", "y k", "b")]
    nodes = [*first, *nodes, *more, node("Add", f"ad {'bd' if other else 'b'}", "c"), *last]
    return model(nodes, {"x": (3, 40), "y": (3, 40)}, "cq", {"k": np.float32(1.3)} | weights | held | ends, opset=19)


@pytest.mark.parametrize(
    ("zero", "other"), [(np.uint8(0), False), (np.uint8(131), False), (np.int8(-7), False), (np.uint8(9), True)]
)
def test_bytes_are_the_same_without_bytes_between(zero: Any, other: bool) -> None:
    """Of two summands that are rounded one stays bytes: another kernel makes it."""
    network = from_onnx(residual(zero, other))
    program, (wanted,) = program_of(network)
    made = without_bytes_between(program)
    counts = [sum(op.dtype == str(zero.dtype) for op in p.ops) for p in (program, made)]
    assert counts[0] > counts[1] == 1 + other
    x, y = drawn(3, 40) * 3, drawn(3, 40, seed=1)
    x[0, :3] = 1e30, -1e30, 0.01 / 1.3
    known = {name: array for name, array in network.weights.items() if name in program.by_name}
    given = dict(zip((t.op.name for t in network.inputs), (x, y), strict=True)) | known
    before, after = (evaluate(p, given)[wanted] for p in (program, made))
    np.testing.assert_array_equal(after, before)
    kernels = [compile_network(network, None, None, numerics)(x, y).astype(int) for numerics in ("strict", "default")]
    np.testing.assert_array_equal(kernels[0], before)
    assert np.abs(kernels[1] - kernels[0]).max() <= 1  # for divisions


def test_bytes_lie_between_kernels_not_the_floats_that_they_mean() -> None:
    (first, held), (second, more) = rounded("a", 0.02, np.uint8(9)), rounded("b", 0.03, np.uint8(9))
    sums = [node("MatMul", "x k", "a"), node("MatMul", "x l", "b"), node("Add", "ad bd", "c"), node("Relu", "c", "y")]
    weights = {"k": drawn(40, 24), "l": drawn(40, 24, seed=2)} | held | more
    network = from_onnx(model([*sums[:2], *first, *second, *sums[2:]], {"x": (3, 40)}, "y", weights, opset=19))
    program, _ = program_of(network)
    parts = parts_of(program)
    between = {name for part in parts for name in part.outputs} - set(program.outputs)
    assert len(parts) == 2
    assert {program.buffers[name].dtype for name in between} == {"uint8"}
