"""The operators of `benchmarks.vocabulary` as nodes of ONNX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from benchmarks.peers.serve import Array, Given

Nodes = Sequence[Any]
node = helper.make_node
PLACES = ("topk", "argsort")
"""Operators whose results are int64."""


def constant(name: str, value: Array) -> Any:
    """A node that has this value."""
    return node("Constant", [], [name], value=numpy_helper.from_array(value))


def convolution(given: Given) -> Nodes:
    """In any number of dimensions."""
    return [node("Conv", ["x", "w"], ["y"], pads=[given.options["padding"]] * 2 * (given["x"].ndim - 2))]


def conv2d_transpose(given: Given) -> Nodes:
    """With the same stride in both directions."""
    padding, stride = given.options["padding"], given.options["stride"]
    return [node("ConvTranspose", ["x", "w"], ["y"], pads=[padding] * 4, strides=[stride] * 2)]


def resize(given: Given) -> Nodes:
    """To twice the size."""
    scales = constant("scales", np.array([1, 1, 2, 2], np.float32))
    return [scales, node("Resize", ["x", "", "scales"], ["y"], mode="linear")]


def places(given: Given) -> Nodes:
    """Of the largest numbers, or of all from the smallest on."""
    k = given.options.get("k")
    count = constant("k", np.array([k or given["x"].shape[1]]))
    return [count, node("TopK", ["x", "k"], ["values", "y"], axis=1, largest=int(k is not None))]


def cumsum(given: Given) -> Nodes:
    """Along rows."""
    return [constant("axis", np.array(1)), node("CumSum", ["x", "axis"], ["y"])]


def lstm(given: Given) -> Nodes:
    """With weights in the order that ONNX wants, known ahead: input, output, forget, cell."""

    def ordered(name: str) -> Array:
        i, f, g, o = np.split(given[name], 4)
        return np.concatenate([i, o, f, g])[None]

    return [
        constant("W", ordered("wi")),
        constant("R", ordered("wh")),
        constant("B", np.concatenate([ordered("bi"), ordered("bh")], axis=1)),
        constant("direction", np.array([1])),
        node("LSTM", ["x", "W", "R", "B"], ["by_direction"], hidden_size=given["wh"].shape[1]),
        node("Squeeze", ["by_direction", "direction"], ["y"]),
    ]


def scatter_add(given: Given) -> Nodes:
    """By element."""
    return [node("ScatterElements", ["data", "indices", "updates"], ["y"], axis=0, reduction="add")]


GRAPHS: dict[str, Callable[[Given], Nodes]] = {
    "conv2d_transpose": conv2d_transpose,
    "conv1d": convolution,
    "conv3d": convolution,
    "resize": resize,
    "topk": places,
    "argsort": places,
    "cumsum": cumsum,
    "lstm": lstm,
    "scatter_add": scatter_add,
}
