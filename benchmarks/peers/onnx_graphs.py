"""Workloads as ONNX models, for the peers that read them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, checker, helper, numpy_helper, shape_inference

from benchmarks.peers.serve import Array, Given, Unsupported

OPSET = 20
TYPES = {"float32": TensorProto.FLOAT, "int8": TensorProto.INT8, "int32": TensorProto.INT32}
Nodes = Sequence[Any]
node = helper.make_node


def matmul(given: Given) -> Nodes:
    """Of int8: A as unsigned with the zero at 128, the form that runtimes have fast kernels for."""
    if given.dtype == "int8":
        return [node("MatMulInteger", ["A", "B", "zero"], ["y"])]
    return [node("MatMul", ["A", "B"], ["y"])]


def dense_gelu(given: Given) -> Nodes:
    """The activation is an operator of ONNX."""
    return [node("MatMul", ["x", "W"], ["z"]), node("Add", ["z", "b"], ["s"]), node("Gelu", ["s"], ["y"])]


def conv2d(given: Given) -> Nodes:
    """With relu if there is a bias."""
    padding, stride, groups = (given.options[name] for name in ("padding", "stride", "groups"))
    settings = {"pads": [padding] * 4, "strides": [stride] * 2, "group": groups}
    if "bias" not in given.arrays:
        return [node("Conv", ["x", "w"], ["y"], **settings)]
    return [node("Conv", ["x", "w", "bias"], ["z"], **settings), node("Relu", ["z"], ["y"])]


def softmax(given: Given) -> Nodes:
    """Of rows."""
    return [node("Softmax", ["x"], ["y"], axis=-1)]


def layer_norm(given: Given) -> Nodes:
    """Of rows."""
    return [node("LayerNormalization", ["x", "gamma", "beta"], ["y"], axis=-1, epsilon=given.options["epsilon"])]


def attention(given: Given) -> Nodes:
    """In the nodes that exporters write, which runtimes recognise."""
    return [
        node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["scores"]),
        node("Mul", ["scores", "scale"], ["scaled"]),
        node("Softmax", ["scaled"], ["shares"], axis=-1),
        node("MatMul", ["shares", "v"], ["y"]),
    ]


GRAPHS: dict[str, Callable[[Given], Nodes]] = {
    "matmul": matmul,
    "dense_gelu": dense_gelu,
    "conv2d": conv2d,
    "softmax": softmax,
    "layer_norm": layer_norm,
    "attention": attention,
}


def model(operator: str, given: Given) -> tuple[ModelProto, dict[str, Array]]:
    """The model of a workload, inputs that are known ahead as constants, and the other inputs."""
    if given.dtype not in TYPES:
        raise Unsupported(f"no {given.dtype} in these models")
    fed = {name: array for name, array in given.arrays.items() if name not in given.constant}
    constants = {name: given[name] for name in given.constant}
    if operator == "attention":
        constants["scale"] = np.array(1 / math.sqrt(given["q"].shape[-1]), np.float32)
    types = dict.fromkeys(fed, TYPES[given.dtype])
    if given.dtype == "int8":
        constants["zero"] = np.array(128, np.uint8)
        fed["A"], types["A"] = (fed["A"].view(np.uint8) ^ np.uint8(128)), TensorProto.UINT8
    rank = max(array.ndim for array in given.arrays.values())
    made = TYPES["int32" if given.dtype == "int8" else "float32"]
    graph = helper.make_graph(
        list(GRAPHS[operator](given)),
        operator,
        [helper.make_tensor_value_info(name, types[name], array.shape) for name, array in fed.items()],
        [helper.make_tensor_value_info("y", made, [None] * rank)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    whole = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    checker.check_model(whole)
    return shape_inference.infer_shapes(whole), fed
