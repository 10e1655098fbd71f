"""Graphs of a model: its own, and those that are attributes of nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tensorlang.errors import DefinitionError
from tensorlang.networks.network import Array
from tensorlang.networks.onnx.package import onnx_package
from tensorlang.words import printable

RANDOM = ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli")
"""Operators that make something else at each call."""


def label_of(node: Any) -> str:
    """How a node is called: by its name, or by what it makes."""
    return printable(node.name or f"the node that makes {next(iter(node.output), '?')}", 200)


def reads_of(node: Any) -> Iterator[str]:
    """The names that a node reads, with those that its own graphs take from around it."""
    yield from filter(None, node.input)
    for graph in inner_graphs(node).values():
        yield from sorted(free_names(graph))


def graphs_of(graph: Any) -> Iterator[Any]:
    """A graph and all that its nodes hold, outer ones first; protobuf reads some 30 in each other, and no more."""
    yield graph
    for node in graph.node:
        for inner in inner_graphs(node).values():
            yield from graphs_of(inner)


def inner_graphs(node: Any) -> Mapping[str, Any]:
    """The graphs of a node by the names of their attributes."""
    return {a.name: a.g for a in node.attribute if a.HasField("g")}


def weights_of(graph: Any) -> dict[str, Array]:
    """The weights that a graph holds, by name; DefinitionError for one that cannot be read."""
    found: dict[str, Array] = {}
    for tensor in graph.initializer:
        try:
            found[tensor.name] = np.asarray(onnx_package().numpy_helper.to_array(tensor))
        except Exception as error:  # whatever the package does with types, sizes and places of data that are none
            raise DefinitionError(f"the weight {tensor.name} cannot be read: {error}") from error
    return found


def free_names(graph: Any) -> frozenset[str]:
    """The names of outer graphs that a graph reads, itself or in its own graphs."""
    own = {given.name for given in graph.input} | {held.name for held in graph.initializer}
    read = {out.name for out in graph.output}
    for node in graph.node:
        read |= set(node.input)
        for inner in inner_graphs(node).values():
            read |= free_names(inner)
        own |= set(node.output)
    return frozenset(read - own - {""})
