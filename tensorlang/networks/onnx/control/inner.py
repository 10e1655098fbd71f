"""Graphs within nodes: what they make of values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from tensorlang.networks.network import Value
from tensorlang.networks.node import shape_of
from tensorlang.networks.onnx.graphs import inner_graphs
from tensorlang.networks.onnx.scopes import Read, Reading
from tensorlang.networks.refusal import Unsupported
from tensorlang.te.operation import Tensor

Values: TypeAlias = list[Value]


def outputs_of(graph: Any, inner: Reading, read: Read) -> Values | None:
    """What a graph makes, with the values that it reads in `inner`; None where some of its nodes are refused."""
    before = len(inner.refused), len(inner.skipped)
    for node in graph.node:
        read(node, inner)
    missing = [out.name for out in graph.output if out.name not in inner.values]
    if missing and before == (len(inner.refused), len(inner.skipped)):
        raise Unsupported(f"no node of its graph {graph.name} makes {', '.join(missing)}")
    return None if missing else [inner.values[out.name] for out in graph.output]


def input_of(proto: Any, reading: Reading, place: int) -> Value | None:
    """An input of a node, if it is given."""
    name = proto.input[place] if place < len(proto.input) else ""
    return reading.values[name] if name else None


def graph_of(proto: Any, word: str, inputs: int, outputs: int) -> Any:
    """A graph of a node with so many inputs, and at least so many outputs; Unsupported where there is none."""
    graph = inner_graphs(proto).get(word)
    if graph is None:
        raise Unsupported(f"it has no graph {word}")
    if len(graph.input) != inputs or len(graph.output) < outputs:
        found = f"{len(graph.input)} inputs and {len(graph.output)} outputs"
        raise Unsupported(f"its graph {graph.name} has {found}; {inputs} and at least {outputs} are wanted")
    return graph


def kinds_of(values: Sequence[Value]) -> list[str]:
    """Dtypes and shapes as text; Unsupported for sequences, which are lists of arrays."""
    if any(isinstance(value, list) for value in values):
        raise Unsupported("it passes on a sequence, which the network would have to choose or to change when it runs")
    return [f"{value.dtype}{list(shape_of(value))}" for value in values]


def tensor_of(value: Value, reading: Reading) -> Tensor:
    """A value as a tensor of the program."""
    return value if isinstance(value, Tensor) else reading.weights.tensor(value)
