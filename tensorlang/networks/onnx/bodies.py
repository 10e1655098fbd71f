"""Operators written down as functions of operators of ONNX, node by node, for the inputs that a node has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tensorlang.dataclass import dataclass
from tensorlang.networks.network import Value
from tensorlang.networks.node import shape_of
from tensorlang.networks.onnx.package import onnx_package
from tensorlang.networks.refusal import Unsupported

_OPSET = 23
"""Of what functions are made of."""


@dataclass(slots=True)
class Body:
    """The nodes of a function so far. Values have names, those of inputs too; an input that is left out is None.

    `label`: what to call the node that calls it, which wants so many `outputs`.
    """

    op: str
    label: str
    outputs: int
    values: tuple[Value | None, ...]
    attrs: Mapping[str, Any]
    nodes: list[Any] = field(default_factory=list)

    def input(self, place: int) -> str | None:
        """The name of an input."""
        return f"given{place}" if place < len(self.values) and self.values[place] is not None else None

    def needed(self, place: int) -> str:
        """The name of an input; Unsupported where it is left out."""
        name = self.input(place)
        if name is None:
            raise Unsupported(f"{self.op} has no input {place}")
        return name

    def shape(self, place: int) -> tuple[int, ...]:
        """The shape of an input."""
        self.needed(place)
        value = self.values[place]
        assert value is not None
        return shape_of(value)

    def dtype(self, place: int) -> str:
        """The dtype of an input."""
        self.needed(place)
        return str(getattr(self.values[place], "dtype", ""))

    def refuse(self, *places: int, why: str) -> None:
        """Unsupported where some of these inputs are given."""
        if any(self.input(place) is not None for place in places):
            raise Unsupported(f"{self.op} {why}")

    def only(self, **attributes: Any) -> None:
        """Unsupported where attributes are others than these."""
        for name, value in attributes.items():
            if self.attrs.get(name, value) != value:
                raise Unsupported(f"{self.op} with {name} = {self.attrs[name]}; {value} is taken")

    def add(self, op: str, *inputs: str | None, **attributes: Any) -> str:
        """Add a node; the name of its only output."""
        return self.split(op, 1, *inputs, **attributes)[0]

    def split(self, op: str, outputs: int, *inputs: str | None, **attributes: Any) -> list[str]:
        """Add a node with so many outputs; their names."""
        names = [f"made{len(self.nodes)}_{k}" for k in range(outputs)]
        given = [name or "" for name in inputs]
        while given and not given[-1]:
            given.pop()
        self.nodes.append(onnx_package().helper.make_node(op, given, names, f"{self.label}/{op}", **attributes))
        return names

    def constant(self, value: npt.ArrayLike, dtype: Any) -> str:
        """Add an array."""
        array = np.asarray(value, dtype)
        return self.add("Constant", value=onnx_package().numpy_helper.from_array(array))

    def reshaped(self, name: str, *shape: int) -> str:
        """Add a reshape."""
        return self.add("Reshape", name, self.constant(shape, np.int64))

    def sum(self, *names: str | None) -> str:
        """Add the sum of values, without those that are left out."""
        first, *rest = [name for name in names if name is not None]
        for name in rest:
            first = self.add("Add", first, name)
        return first

    def function(self, outputs: Sequence[str | None], domain: str) -> Any:
        """The function of these outputs; one that it does not make is named so that whoever reads it is refused."""
        helper = onnx_package().helper
        names = [name or f"nothing{k}" for k, name in enumerate(outputs)]
        inputs = [f"given{k}" for k in range(len(self.values))]
        return helper.make_function(domain, self.op, inputs, names, self.nodes, [helper.make_opsetid("", _OPSET)])


Written: TypeAlias = Callable[[Body], Sequence[str | None] | str]
"""What adds the nodes of an operator, and names its outputs."""
