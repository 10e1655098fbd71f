"""Moves of elements between other stages change no result, whatever they are."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorlang.networks.compiling import compile_network, program_of
from tensorlang.networks.onnx.reading import from_onnx
from tensorlang.te.operation import ComputeOp, loads
from tests.networks.models import drawn, model, node, reference
from tests.thoroughness import draws


@st.composite
def chains(draw: st.DrawFn) -> Any:
    """A chain of moves, activations and sums over elements of one array."""
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4)))
    first, nodes, weights, name = shape, [], {}, "x"
    for k in range(draw(st.integers(2, 7))):
        made = f"t{k}"
        match draw(st.sampled_from(["reshape", "transpose", "relu", "bias", "slice", "sum"])):
            case "reshape":
                shape = draw(_shapes(prod(shape)))
                weights[f"s{k}"] = np.array(shape, np.int64)
                nodes.append(node("Reshape", f"{name} s{k}", made))
            case "transpose":
                order = draw(st.permutations(range(len(shape))))
                shape = tuple(shape[d] for d in order)
                nodes.append(node("Transpose", name, made, perm=list(order)))
            case "relu":
                nodes.append(node("Relu", name, made))
            case "bias":
                weights[f"b{k}"] = drawn(*shape[-1:], seed=k)
                nodes.append(node("Add", f"{name} b{k}", made))
            case "slice" if shape and shape[0] > 1:
                weights |= {f"from{k}": np.array([1]), f"to{k}": np.array([shape[0]])}
                shape = (shape[0] - 1, *shape[1:])
                nodes.append(node("Slice", f"{name} from{k} to{k}", made))
            case _:
                weights[f"axes{k}"] = np.array([len(shape) - 1])
                shape = (*shape[:-1], 1)
                nodes.append(node("ReduceSum", f"{name} axes{k}", made))
        name = made
    return model(nodes, {"x": first}, name, weights), first


@st.composite
def _shapes(draw: st.DrawFn, count: int) -> tuple[int, ...]:
    """Shapes of so many elements."""
    found: list[int] = []
    while count > 1 and len(found) < 3:
        part = draw(st.sampled_from([n for n in range(1, count + 1) if count % n == 0]))
        found.append(part)
        count //= part
    return tuple(draw(st.permutations([*found, count])))


@settings(max_examples=draws(12, 300))
@given(chains())
def test_chains_of_moves(case: Any) -> None:
    proto, shape = case
    x = drawn(*shape, seed=3)
    made = compile_network(from_onnx(proto), "interpreter")(x)
    np.testing.assert_allclose(made, reference(proto, x)[0], rtol=1e-4, atol=1e-5)


def test_moves_are_no_stages() -> None:
    weights = {"w": drawn(6, 8), "a": np.array([2, 3, 2, 4]), "b": np.array([6, 8])}
    nodes = [
        node("MatMul", "x w", "m"),
        node("Reshape", "m a", "s"),
        node("Transpose", "s", "t", perm=[1, 0, 3, 2]),
        node("Tanh", "t", "h"),
        node("Transpose", "h", "u", perm=[1, 0, 3, 2]),
        node("Reshape", "u b", "v"),
        node("Exp", "v", "y"),
    ]
    program, _ = program_of(from_onnx(model(nodes, {"x": (6, 6)}, "y", weights)))
    stages = [op for op in program.ops if isinstance(op, ComputeOp)]
    assert [op.name.rstrip("0123456789") for op in stages] == ["matmul", "tanh", "exp"]
    assert [[a.name for a in op.axes] for op in stages] == [["i", "j"]] * 3


def test_windows_slide_over_images_that_were_tokens() -> None:
    """Vision transformers with convolutions between attentions: rows of tokens and their pixels."""
    weights = {"s": drawn(6, seed=1), "image": np.array([1, 6, 4, 5]), "w": drawn(8, 6, 3, 3, seed=2)}
    nodes = [
        node("LayerNormalization", "x s", "norm", axis=-1),
        node("Transpose", "norm", "columns", perm=[0, 2, 1]),
        node("Reshape", "columns image", "pixels"),
        node("Relu", "pixels", "positive"),
        node("Conv", "positive w", "y", pads=[1, 1, 1, 1], strides=[2, 2]),
    ]
    proto, x = model(nodes, {"x": (1, 20, 6)}, "y", weights), drawn(1, 20, 6, seed=3)
    network = from_onnx(proto)
    program, _ = program_of(network)
    (conv,) = (op for op in program.ops if isinstance(op, ComputeOp) and len(op.reduce_axes) == 3)
    assert sorted(len(load.index) for load in loads(conv)) == [4, 4]
    np.testing.assert_allclose(compile_network(network)(x), reference(proto, x)[0], rtol=1e-4, atol=1e-5)


def test_a_sum_has_the_axes_of_one_element_of_the_output_behind_it() -> None:
    weights = {"w": drawn(6, 5), "b": drawn(5, seed=1)}
    proto = model([node("MatMul", "x w", "m"), node("Add", "m b", "y")], {"x": (1, 4, 6)}, "y", weights)
    made, x = compile_network(from_onnx(proto)), drawn(1, 4, 6, seed=2)
    assert len(made.steps) == 1
    np.testing.assert_allclose(made(x), reference(proto, x)[0], rtol=1e-5)
