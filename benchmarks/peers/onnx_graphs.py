"""Workloads as ONNX models, for the peers that read them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, checker, helper, numpy_helper, shape_inference

from benchmarks.peers import onnx_vocabulary
from benchmarks.peers.serve import Array, Given, Unsupported

OPSET = 20
TYPES = {"float32": TensorProto.FLOAT, "int8": TensorProto.INT8, "int32": TensorProto.INT32}
QUANTIZED = "quantized_conv2d"
Nodes = Sequence[Any]
Graph = Callable[[Given], Nodes]
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


def quantized_conv2d(given: Given) -> Nodes:
    """One node, with data as unsigned bytes with the zero at 128."""
    padding, stride = given.options["padding"], given.options["stride"]
    inputs = ["x", "one", "zero", "w", "scale", "zero_w", "one", "zero_y", "bias"]
    return [node("QLinearConv", inputs, ["y"], pads=[padding] * 4, strides=[stride] * 2)]


def dequantized_conv2d(given: Given) -> Nodes:
    """The form that OpenVINO finds quantized layers in: floats between two roundings."""
    padding, stride = given.options["padding"], given.options["stride"]
    return [
        node("DequantizeLinear", ["x", "one", "zero"], ["data"]),
        node("DequantizeLinear", ["w", "scale", "zero_w"], ["weight"]),
        node("Conv", ["data", "weight", "offset"], ["z"], pads=[padding] * 4, strides=[stride] * 2),
        node("QuantizeLinear", ["z", "one", "zero_y"], ["y"]),
    ]


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


GRAPHS: dict[str, Graph] = {
    "matmul": matmul,
    "dense_gelu": dense_gelu,
    "conv2d": conv2d,
    "quantized_conv2d": quantized_conv2d,
    "softmax": softmax,
    "layer_norm": layer_norm,
    "attention": attention,
    **onnx_vocabulary.GRAPHS,
}


def model(operator: str, given: Given, nodes: Graph | None = None) -> tuple[ModelProto, dict[str, Array]]:
    """The model of a workload, inputs that are known ahead as constants, and the other inputs.

    `nodes`: the graph, if it is not that of `GRAPHS`.
    """
    if given.dtype not in TYPES:
        raise Unsupported(f"no {given.dtype} in these models")
    fed = {name: array for name, array in given.arrays.items() if name not in given.constant}
    constants = {name: given[name] for name in given.constant}
    if operator == "attention":
        constants["scale"] = np.array(1 / math.sqrt(given["q"].shape[-1]), np.float32)
    types = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in fed.items()}
    if given.dtype == "int8":
        constants["zero"] = np.array(128, np.uint8)
        moved = "A" if "A" in fed else "x"
        fed[moved], types[moved] = (fed[moved].view(np.uint8) ^ np.uint8(128)), TensorProto.UINT8
    if operator == QUANTIZED:
        constants |= {"one": np.array(1, np.float32), "zero_y": np.array(0, np.uint8), "zero_w": np.array(0, np.int8)}
        scale = np.float32(given.options["scale"])
        constants |= {"scale": np.array(scale), "bias": given["bias"].astype(np.int32), "offset": given["bias"] * scale}
    rank = max(array.ndim for array in given.arrays.values())
    made = TensorProto.UINT8 if operator == QUANTIZED else TYPES["int32" if given.dtype == "int8" else "float32"]
    made = TensorProto.INT64 if operator in onnx_vocabulary.PLACES else made
    graph = helper.make_graph(
        list((nodes or GRAPHS[operator])(given)),
        operator,
        [helper.make_tensor_value_info(name, types[name], array.shape) for name, array in fed.items()],
        [helper.make_tensor_value_info("y", made, [None] * rank)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    whole = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    checker.check_model(whole)
    return shape_inference.infer_shapes(whole), fed
