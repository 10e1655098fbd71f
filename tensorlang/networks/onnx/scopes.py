"""A model as far as it is read: the values of a graph and of those around it, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from math import prod
from typing import Any, TypeAlias

from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.networks.integers import Quantized
from tensorlang.networks.network import Network, Origin, Tail, Value, Weights
from tensorlang.networks.node import own_stages, shape_of
from tensorlang.networks.onnx.graphs import weights_of
from tensorlang.networks.refusal import Refusal, Unsupported, UnsupportedModel
from tensorlang.te.operation import Tensor
from tensorlang.words import printable

DOMAINS = ("", "ai.onnx")
OLDEST, NEWEST = 7, 28
_SMALL = 1024
"""Elements of an input that may decide on shapes."""


class Allowance:
    """How many nodes of inner graphs may still be read, those of a loop in each iteration."""

    most = 10_000

    def __init__(self) -> None:
        self._left = self.most

    def take(self, nodes: int) -> None:
        """Count nodes; Unsupported where they are too many."""
        self._left -= nodes
        if self._left < 0:
            raise Unsupported(f"its iterations, with those around it, have more than {self.most:,} nodes")


@dataclass(slots=True)
class Reading:
    """A graph as far as it is read: its values by name, what was refused, and the stages that nodes made.

    Nodes that are `skipped` need what a refused one would have made; `fallen` are those that onnxruntime runs,
    the last of them as a `tail`. `functions`: those of the model, by domain, name and overload.
    """

    graph: Any
    weights: Weights
    opsets: Sequence[Any]
    values: dict[str, Value] = field(default_factory=dict)
    inputs: dict[str, Tensor] = field(default_factory=dict)
    refused: list[Refusal] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    fallen: list[Refusal] = field(default_factory=list)
    tail: Tail | None = None
    origins: dict[str, Origin] = field(default_factory=dict)
    meanings: dict[str, Quantized] = field(default_factory=dict)
    allowance: Allowance = field(default_factory=Allowance)
    functions: Mapping[tuple[str, str, str], Any] = field(default_factory=dict)

    @property
    def opset(self) -> int:
        """The version of ONNX's own operators."""
        return next((int(o.version) for o in self.opsets if o.domain in DOMAINS), OLDEST)

    @property
    def name(self) -> str:
        """What the model calls itself."""
        return printable(self.graph.name, 200) or "network"

    def stage(self, label: str, op: str) -> str:
        """A new name for the stage of a node, by which its origin is found."""
        word = "".join(c if c.isalnum() or c == "_" else "_" for c in op.lower())
        stage = f"{word}{len(self.origins)}"
        self.origins[stage] = Origin(label, op)
        return stage

    def inside(self, graph: Any, given: Sequence[Value]) -> Reading:
        """A graph within this one, with values for its inputs; it reads the names of this one, and adds none to it."""
        self.allowance.take(1 + len(graph.node))
        own = dict(zip((i.name for i in graph.input), given, strict=True))
        return replace(self, graph=graph, values=self.values | weights_of(graph) | own, meanings=dict(self.meanings))

    def deciding(self, tensor: Tensor) -> tuple[str, ...]:
        """The inputs of which a tensor is made, where they are small: calls may well give them the same values."""
        names, found, seen = {id(t.op): name for name, t in self.inputs.items()}, list[str](), set[int]()
        left = [tensor]
        while left:
            one = left.pop()
            if id(one.op) in seen:
                continue
            seen.add(id(one.op))
            left += one.op.input_tensors
            if id(one.op) in names:
                found.append(names[id(one.op)])
        return () if any(prod(shape_of(self.inputs[name])) > _SMALL for name in found) else tuple(sorted(found))

    def network(self, advice: str = "") -> Network:
        """The network; UnsupportedModel where nodes were refused, DefinitionError where outputs are not made."""
        if self.refused:
            raise UnsupportedModel(self.name, self.refused, advice)
        last = ((), ()) if self.tail is None else (self.tail.made, self.tail.taken)
        names = tuple(dict.fromkeys([*(o.name for o in self.graph.output if o.name not in last[0]), *last[1]]))
        missing = [name for name in names if name not in self.values]
        if missing:
            raise DefinitionError(f"no node of the model makes its outputs {', '.join(missing)}")
        outputs = own_stages((self.values[name] for name in names), self.weights)
        given, arrays = tuple(self.inputs.values()), self.weights.arrays
        named = tuple(self.inputs), names, self.origins
        return Network(self.name, given, outputs, arrays, *named, fallback=tuple(self.fallen), tail=self.tail)


Read: TypeAlias = Callable[[Any, Reading], None]
"""Adds what a node makes to the values of a graph that is read."""
