"""What a model is made of, and what of it is not taken, before anything is compiled."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt

from tensorlang.dataclass import dataclass
from tensorlang.networks.compiling import operations, program_of
from tensorlang.networks.groups import parts_of
from tensorlang.networks.node import shape_of
from tensorlang.networks.onnx.graphs import graphs_of
from tensorlang.networks.onnx.reading import read_model
from tensorlang.networks.onnx.scopes import Reading
from tensorlang.networks.refusal import Refusal
from tensorlang.target import parse
from tensorlang.te.operation import Tensor


@dataclass(frozen=True, slots=True)
class Row:
    """Nodes of one operator: how many there are, and what they compute (multiply-adds count twice)."""

    op: str
    nodes: int
    operations: float


@dataclass(frozen=True, slots=True)
class Report:
    """A model: `inputs` and `outputs` with dtypes and shapes, operators by what they compute, bytes of weights.

    `kernels`: how many its stages become. Of a model with `refusals` only what does not need these could be looked at;
    `skipped` are the nodes that could not, and kernels are not counted.
    """

    name: str
    opset: int
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    rows: tuple[Row, ...]
    weights: int
    kernels: int | None
    refusals: tuple[Refusal, ...]
    skipped: tuple[str, ...]

    @property
    def is_supported(self) -> bool:
        """Whether the network can be compiled."""
        return not self.refusals

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            "name": self.name,
            "opset": self.opset,
            "inputs": dict(self.inputs),
            "outputs": dict(self.outputs),
            "operators": [{"op": r.op, "nodes": r.nodes, "operations": r.operations} for r in self.rows],
            "weights_bytes": self.weights,
            "kernels": self.kernels,
            "supported": self.is_supported,
            "refused": [{"node": r.node, "op": r.op, "why": r.why} for r in self.refusals],
            "skipped": list(self.skipped),
        }


def inspect(
    model: str | os.PathLike[str] | Any,
    shapes: Mapping[str, Sequence[int]] | None = None,
    known: Mapping[str, npt.ArrayLike] | None = None,
) -> Report:
    """Return what an ONNX model is made of; arguments and errors are those of `from_onnx`, but for refusals."""
    reading = read_model(model, shapes, known)
    nodes = Counter(node.op_type for graph in graphs_of(reading.graph) for node in graph.node)
    computed, kernels = Counter[str](), None
    if not reading.refused:
        network = reading.network()
        program, _ = program_of(network)
        kernels = len(parts_of(program, parse(None)))
        for op in program.ops:
            computed[network.origin(op.name).op] += int(operations(op))
    rows = [Row(op, count, float(computed[op])) for op, count in nodes.items()]
    return Report(
        reading.name,
        reading.opset,
        {name: _text(tensor) for name, tensor in reading.inputs.items()},
        {o.name: _output(reading, o.name) for o in reading.graph.output},
        tuple(sorted(rows, key=lambda r: (-r.operations, -r.nodes, r.op))),
        sum(array.nbytes for array in reading.weights.arrays.values()),
        kernels,
        tuple(reading.refused),
        tuple(reading.skipped),
    )


def _output(reading: Reading, name: str) -> str:
    value = reading.values.get(name)
    return "not known" if value is None else _text(value)


def _text(value: Any) -> str:
    dtype = value.dtype if isinstance(value, Tensor) else str(value.dtype)
    return f"{dtype}{list(shape_of(value))}"
