"""A network: one te program, with arrays for those of its inputs that are weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes, te
from tensorlang.errors import ArgumentError
from tensorlang.networks.refusal import Refusal
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import Tensor

Array: TypeAlias = npt.NDArray[Any]
Value: TypeAlias = Tensor | Array
"""What a node reads or makes: a tensor of the program, or an array that is known before it runs."""


LIBRARY = "library"
"""The operator of the one step of an exported network."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The node of a model that made a stage, and its operator."""

    node: str
    op: str


class Signature(Protocol):
    """How a network is called: what it is given becomes its inputs in order, and its outputs become what it returns."""

    def flat(self, inputs: Sequence[Any], keywords: Mapping[str, Any]) -> Sequence[Any]:
        """The inputs of a call, in order; ArgumentError for what does not fit."""

    def nested(self, outputs: Sequence[Array], inputs: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """What a call returns."""


@dataclass(frozen=True, slots=True)
class Plain:
    """A network that is called with its inputs in order, and returns its output, or a tuple of them."""

    name: str

    def flat(self, inputs: Sequence[Any], keywords: Mapping[str, Any]) -> Sequence[Any]:
        """The inputs of a call, in order."""
        if keywords:
            raise ArgumentError(f"{self.name} takes its inputs in order, got {', '.join(keywords)} by name")
        return inputs

    def nested(self, outputs: Sequence[Array], inputs: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """One output, or a tuple of several."""
        return outputs[0] if len(outputs) == 1 else tuple(outputs)


@dataclass(frozen=True, slots=True, eq=False)
class Tail:
    """What another runtime makes of outputs of a network, by their names, behind it: arrays of any shape.

    `names` are those of all results in order: of what the network makes, and of what is `made` of what is `taken`.
    """

    names: tuple[str, ...]
    taken: tuple[str, ...]
    made: tuple[str, ...]
    call: Callable[[Sequence[Array]], Sequence[Array]]

    def results(self, found: Mapping[str, Array]) -> tuple[Array, ...]:
        """All results, by what the network made."""
        made = self.call([found[name] for name in self.taken])
        known = {**found, **dict(zip(self.made, made, strict=True))}
        return tuple(known[name] for name in self.names)


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """`inputs` are given at each call, in order; `weights` by the name of their placeholder; `outputs` are made.

    `input_names` and `output_names` are those of the model; `origins` tells which node of it made a stage. `signature`
    is how it is called, plainly unless given. `fallback`: the nodes that another runtime is called for, and why; some
    of them are the `tail`, which makes the model's results of the outputs here.
    """

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    weights: Mapping[str, Array]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    origins: Mapping[str, Origin] = field(default_factory=dict)
    signature: Signature | None = None
    fallback: tuple[Refusal, ...] = ()
    tail: Tail | None = None

    @property
    def input_shapes(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        """Shape and NumPy dtype of each input, by the model's name for it."""
        return {
            name: (tuple(extent_of(e) or 0 for e in t.shape), dtypes.info(t.dtype).numpy)
            for name, t in zip(self.input_names, self.inputs, strict=True)
        }

    def origin(self, stage: str) -> Origin:
        """The node that made a stage, by the stage's name, to which it may have added words."""
        name = stage
        while name and name not in self.origins:
            name = name.rpartition("_")[0]
        return self.origins.get(name, Origin(stage, stage))


@dataclass(slots=True)
class Weights:
    """Arrays that are known ahead, and the placeholders that stand for them; each array has one."""

    arrays: dict[str, Array] = field(default_factory=dict)
    _known: dict[int, tuple[Array, Tensor]] = field(default_factory=dict)

    def tensor(self, array: Array) -> Tensor:
        """The placeholder of an array."""
        if id(array) not in self._known:
            name = f"weight{len(self.arrays)}"
            self.arrays[name] = np.require(array, requirements="C")
            self._known[id(array)] = array, te.placeholder(array.shape, array.dtype, name)
        return self._known[id(array)][1]
