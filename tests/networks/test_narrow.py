"""Products of bytes in the layouts of dot instructions are those of the plain program, whatever machine runs them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import te
from tensorlang.networks.compiling import program_of
from tensorlang.networks.groups import Part, tensors_of
from tensorlang.networks.narrow import narrowed
from tensorlang.networks.onnx.reading import from_onnx
from tensorlang.target import parse
from tensorlang.te.operation import ComputeOp, PlaceholderOp
from tensorlang.te.program import Program
from tests.networks.models import model, node

VNNI = "llvm -mcpu=cooperlake"
RNG = np.random.default_rng(0)


def bytes_of(*shape: int) -> Any:
    return RNG.integers(-128, 128, shape).astype(np.int8)


CASES = [
    ("MatMulInteger", {"x": (5, 18)}, bytes_of(18, 21), {}),
    ("MatMulInteger", {"x": (2, 3, 8)}, bytes_of(8, 70), {}),
    ("ConvInteger", {"x": (1, 5, 9, 7)}, bytes_of(9, 5, 3, 3), {"pads": [1, 1, 1, 1]}),
    ("ConvInteger", {"x": (2, 8, 6, 6)}, bytes_of(40, 8, 1, 1), {"strides": [2, 2]}),
    ("ConvInteger", {"x": (1, 3, 10, 12)}, bytes_of(4, 3, 3, 2), {"strides": [1, 2], "dilations": [2, 3]}),
    ("ConvInteger", {"x": (1, 4, 20)}, bytes_of(6, 4, 5), {"pads": [2, 2]}),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(("op", "inputs", "weight", "attrs"), CASES)
def test_narrow_products_are_the_plain_ones(op: str, inputs: Any, weight: Any, attrs: Any, dtype: str) -> None:
    weights = {"w": weight, "z": np.array(3, dtype)}
    network = from_onnx(model([node(op, "x w z", "y", **attrs)], inputs, "y", weights, dtypes={"x": dtype}))
    program, _ = program_of(network)
    changed, held = narrowed(program, network.weights, parse(VNNI))
    assert any("_sums" in name for name in changed.by_name)
    x = RNG.integers(*((0, 256) if dtype == "uint8" else (-128, 128)), inputs["x"]).astype(dtype)
    np.testing.assert_array_equal(run(changed, held, x), run(program, network.weights, x))


@pytest.mark.sampled(4)
@pytest.mark.covering(1)
@pytest.mark.parametrize("zero", [0, 3])
@pytest.mark.parametrize("pads", [[1, 1, 1, 1], [0, 1, 2, 0], [0, 1, 0, 1]])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_windows_end_with_the_image_where_padding_is_zeros(pads: list[int], zero: int, dtype: str) -> None:
    """Above and below; signed bytes are moved, and their zero with them."""
    nodes = [node("Transpose", "x", "t", perm=[0, 3, 1, 2]), node("ConvInteger", "t w z", "y", pads=pads)]
    weights = {"w": bytes_of(9, 5, 3, 3), "z": np.array(zero, dtype)}
    network = from_onnx(model(nodes, {"x": (1, 9, 7, 5)}, "y", weights, dtypes={"x": dtype}))
    program, _ = program_of(network)
    changed, held = narrowed(program, network.weights, parse(VNNI))
    (sums,) = (op for op in changed.ops if isinstance(op, ComputeOp) and op.name.endswith("_sums"))
    assert sums.reduction is not None
    assert (sums.reduction.where is not None) == (bool(pads[0] + pads[2]) and not zero and dtype == "uint8")
    x = RNG.integers(*((0, 256) if dtype == "uint8" else (-128, 128)), (1, 9, 7, 5)).astype(dtype)
    np.testing.assert_array_equal(run(changed, held, x), run(program, network.weights, x))


def test_rows_in_an_array_of_more_dimensions() -> None:
    """As means of images have them: a dimension of one element in front, or behind."""
    nodes = [
        node("Transpose", "x", "t", perm=[1, 2, 0, 3]),
        node("Flatten", "t", "f"),
        node("MatMulInteger", "f w", "y"),
    ]
    network = from_onnx(model(nodes, {"x": (1, 5, 18, 1)}, "y", {"w": bytes_of(18, 21)}, dtypes={"x": "u1"}))
    program, _ = program_of(network)
    changed, held = narrowed(program, network.weights, parse(VNNI))
    assert any("_sums" in name for name in changed.by_name)
    x = RNG.integers(0, 256, (1, 5, 18, 1)).astype(np.uint8)
    np.testing.assert_array_equal(run(changed, held, x), run(program, network.weights, x))


def test_data_may_lie_the_other_way_around() -> None:
    """As what attention makes lies, before its heads are joined."""
    nodes = [
        node("Transpose", "x", "t", perm=[0, 2, 1]),
        node("Reshape", "t rows", "r"),
        node("MatMulInteger", "r w", "y"),
    ]
    weights = {"w": bytes_of(24, 40), "rows": np.array([9, 24])}
    network = from_onnx(model(nodes, {"x": (1, 24, 9)}, "y", weights, dtypes={"x": "u1"}))
    program, _ = program_of(network)
    changed, held = narrowed(program, network.weights, parse(VNNI))
    assert any("_sums" in name for name in changed.by_name)
    x = RNG.integers(0, 256, (1, 24, 9)).astype(np.uint8)
    np.testing.assert_array_equal(run(changed, held, x), run(program, network.weights, x))


def test_machines_without_dot_instructions_keep_the_plain_products() -> None:
    network = from_onnx(
        model([node("MatMulInteger", "x w", "y")], {"x": (4, 8)}, "y", {"w": bytes_of(8, 8)}, dtypes={"x": "i1"})
    )
    program, _ = program_of(network)
    assert narrowed(program, network.weights, parse("llvm -mcpu=x86-64-v2"))[0].text == program.text


def test_a_matrix_that_several_products_share() -> None:
    nodes = [node("MatMulInteger", "a w", "y"), node("MatMulInteger", "b w", "z")]
    proto = model(nodes, {"a": (4, 8), "b": (9, 8)}, "y z", {"w": bytes_of(8, 8)}, dtypes={"a": "i1", "b": "i1"})
    program, held = narrowed(program_of(from_onnx(proto))[0], from_onnx(proto).weights, parse(VNNI))
    assert {op.name for op in program.ops if isinstance(op, PlaceholderOp)} == {"input0", "input1", *held}


def run(program: Program, weights: Any, x: Any) -> Any:
    """What the program makes of its input, in the loops that are declared."""
    stages = tuple(op for op in program.ops if isinstance(op, ComputeOp))
    names = tuple(op.name for op in program.ops if isinstance(op, PlaceholderOp))
    inputs, outputs = tensors_of(program, Part(stages, names, program.outputs))
    kernel = tensorlang.build(te.create_schedule(outputs), [*inputs, *outputs])
    made = np.empty(kernel_shape(outputs[0]), np.int32)
    kernel(*(x if name.startswith("input") else np.ascontiguousarray(weights[name]) for name in names), made)
    return made


def kernel_shape(tensor: Any) -> tuple[int, ...]:
    return tuple(int(extent.value) for extent in tensor.shape)
