"""Models of ONNX, written down small."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

Array = Any


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    """A node; names are separated by blanks, and `-` is an input that is left out."""
    names = ["" if name == "-" else name for name in inputs.split()]
    return onnx.helper.make_node(op, names, outputs.split(), name=f"the {outputs.split()[0]}", **attributes)


def model(
    nodes: Sequence[Any],
    inputs: Mapping[str, Sequence[Any]],
    outputs: str,
    weights: Mapping[str, Array] | None = None,
    opset: int = 17,
    dtypes: Mapping[str, Any] | None = None,
) -> Any:
    """A model of nodes in order; inputs by name and shape, float32 unless said; weights are arrays by name."""
    kinds = {name: np.dtype((dtypes or {}).get(name, np.float32)) for name in inputs}
    given = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(kinds[name]), shape)
        for name, shape in inputs.items()
    ]
    made = [onnx.helper.make_empty_tensor_value_info(name) for name in outputs.split()]
    held = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in (weights or {}).items()]
    graph = onnx.helper.make_graph(nodes, "small", given, made, held)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=10)


def graph(
    nodes: Sequence[Any],
    outputs: str,
    inputs: Mapping[str, Any] | None = None,
    weights: Mapping[str, Array] | None = None,
) -> Any:
    """A graph within a node; inputs by name with arrays like them."""
    number = onnx.helper.np_dtype_to_tensor_dtype
    given = [
        onnx.helper.make_tensor_value_info(name, number(np.asarray(like).dtype), np.shape(like))
        for name, like in (inputs or {}).items()
    ]
    made = [onnx.helper.make_empty_tensor_value_info(name) for name in outputs.split()]
    held = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in (weights or {}).items()]
    return onnx.helper.make_graph(nodes, "inner", given, made, held)


def reference(proto: Any, *inputs: Array) -> list[Array]:
    """What the reference of the onnx package makes of inputs."""
    from onnx.reference import ReferenceEvaluator

    names = [i.name for i in proto.graph.input if i.name not in {w.name for w in proto.graph.initializer}]
    found: list[Array] = ReferenceEvaluator(proto).run(None, dict(zip(names, inputs, strict=True)))
    return found


def drawn(*shape: int, seed: int = 0) -> Array:
    """Numbers of float32."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def block(channels: int = 6, hidden: int = 10) -> Any:
    """Two convolutions with a residual between them, a pool, and a classifier over flattened pixels."""
    weights = {
        "w1": drawn(hidden, channels, 3, 3, seed=1) * 0.2,
        "b1": drawn(hidden, seed=2),
        "w2": drawn(channels, hidden, 1, 1, seed=3) * 0.3,
        "s": np.abs(drawn(channels, seed=4)) + 0.5,
        "t": drawn(channels, seed=5),
        "m": drawn(channels, seed=6),
        "v": np.abs(drawn(channels, seed=7)) + 0.5,
        "shape": np.array([0, -1]),
        "w3": drawn(channels * 16, 5, seed=8) * 0.2,
        "b3": drawn(5, seed=9),
    }
    nodes = [
        node("Conv", "x w1 b1", "c1", pads=[1, 1, 1, 1]),
        node("Relu", "c1", "r1"),
        node("Conv", "r1 w2", "c2"),
        node("BatchNormalization", "c2 s t m v", "n2"),
        node("Add", "n2 x", "a"),
        node("Relu", "a", "r2"),
        node("MaxPool", "r2", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("Reshape", "p shape", "flat"),
        node("Gemm", "flat w3 b3", "logits"),
        node("Softmax", "logits", "y", axis=-1),
    ]
    return model(nodes, {"x": (1, channels, 8, 8)}, "y", weights)


def calling() -> Any:
    """Calls of a function that the model defines, and of operators that ONNX defines by others."""
    helper = onnx.helper
    factor = helper.make_node("Constant", [], ["factor"])
    factor.attribute.append(
        onnx.AttributeProto(name="value_float", ref_attr_name="factor", type=onnx.AttributeProto.FLOAT)
    )
    body = [factor, helper.make_node("Mul", ["a", "factor"], ["d"]), helper.make_node("Add", ["d", "b"], ["c"])]
    nodes = [
        node("Scaled", "x y", "scaled", factor=3.0, domain="here"),
        node("MeanVarianceNormalization", "image", "normal"),
        node("Shrink", "x", "shrunk", lambd=0.7, bias=0.1),
        node("LayerNormalization", "x s", "whole average", axis=-1),
    ]
    shapes = {"x": (2, 3), "y": (3,), "image": (1, 2, 3, 4)}
    made = model(nodes, shapes, "scaled normal shrunk whole average", {"s": drawn(3, seed=3)}, opset=18)
    opset = [helper.make_opsetid("", 18)]
    made.functions.append(helper.make_function("here", "Scaled", ["a", "b"], ["c"], body, opset, ["factor"]))
    made.opset_import.append(helper.make_opsetid("here", 1))
    return made
