"""How a network is called, and what its results are named after: all that a compiled one needs of the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy.typing as npt

from tensorlang.dataclass import dataclass
from tensorlang.errors import ArgumentError

Array: TypeAlias = npt.NDArray[Any]
LIBRARY = "library"
"""The operator of the one step of an exported network."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The node of a model that made a stage, or the nodes, and what they are."""

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
