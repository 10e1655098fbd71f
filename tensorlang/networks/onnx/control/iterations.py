"""What Loop and Scan have in common: a graph with states, and what it reads in each iteration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from tensorlang import te
from tensorlang.dataclass import dataclass
from tensorlang.networks.network import Value
from tensorlang.networks.node import shape_of
from tensorlang.networks.onnx.control.inner import Values, tensor_of
from tensorlang.networks.onnx.scopes import Reading
from tensorlang.networks.places import within
from tensorlang.te.operation import Tensor


@dataclass(frozen=True, slots=True)
class Sequences:
    """Arrays that a loop goes through: along which axes, and for which of them from the end."""

    arrays: Values = field(default_factory=list)
    axes: Sequence[int] = ()
    turned: Sequence[int] = ()

    def at(self, number: Value, arrays: Sequence[Value], label: str, reading: Reading) -> Values:
        """The elements of an iteration, of arrays in the places of these."""
        return [
            _element(a, axis, number, bool(back), reading.stage(label, "Scan"), reading)
            for a, axis, back in zip(arrays, self.axes, self.turned, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Iterations:
    """A loop: the graph of an iteration, its first states, and what it goes through.

    The graph of one that `tells` (a Loop, and no Scan) takes its number and a condition first, and makes a condition.
    """

    label: str
    graph: Any
    states: Values
    tells: bool
    sequences: Sequences = field(default_factory=Sequences)

    @property
    def rows(self) -> int:
        """How many outputs are collected."""
        return len(self.graph.output) - len(self.states) - self.tells

    def given(
        self, number: Value, condition: Value, states: Sequence[Value], arrays: Sequence[Value], reading: Reading
    ) -> Values:
        """What the graph takes in an iteration."""
        if self.tells:
            return [number, condition, *states]
        return [*states, *self.sequences.at(number, arrays, self.label, reading)]


def _element(value: Value, axis: int, number: Value, back: bool, stage: str, reading: Reading) -> Value:
    """An array at one place along an axis."""
    shape = shape_of(value)
    length, less = shape[axis], (*shape[:axis], *shape[axis + 1 :])
    if not isinstance(number, Tensor):
        at: Any = length - 1 - int(number) if back else int(number)
        if not isinstance(value, Tensor):
            return np.asarray(np.take(value, at, axis))
    else:
        at = within(te.const(length - 1, "int64") - number() if back else number(), length)
    array = tensor_of(value, reading)
    made: Tensor = te.compute(less, lambda *i: array(*i[:axis], at, *i[axis:]), name=stage)
    return made
