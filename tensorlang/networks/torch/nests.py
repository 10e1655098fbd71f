"""How a module of PyTorch takes its inputs and returns its outputs: in nests of tuples, lists and dicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensorlang.dataclass import dataclass
from tensorlang.errors import ArgumentError
from tensorlang.networks.network import Array
from tensorlang.networks.torch.package import torch_package
from tensorlang.networks.torch.values import array_of, tensor_of


@dataclass(frozen=True, slots=True)
class Here:
    """The place of a tensor among the inputs, or among the outputs."""

    number: int


@dataclass(frozen=True, slots=True)
class Nest:
    """The nests of inputs (of those by place, and those by name) and of outputs, and what stands at their leaves.

    At a leaf is the place of a tensor, or a value that is always the same.
    """

    name: str
    inputs: Any
    given: tuple[Any, ...]
    outputs: Any
    made: tuple[Any, ...]

    def flat(self, inputs: Sequence[Any], keywords: Mapping[str, Any]) -> list[Any]:
        """The tensors of a call in order; ArgumentError for nests and values that differ from the example's."""
        pytree, torch = torch_package().utils._pytree, torch_package()
        leaves, nest = pytree.tree_flatten((tuple(inputs), dict(keywords)))
        if nest != self.inputs:
            raise ArgumentError(f"{self.name} takes inputs like its example, {self.inputs}; got {nest}")
        found = []
        for leaf, wanted in zip(leaves, self.given, strict=True):
            if isinstance(wanted, Here):
                found.append(array_of(leaf) if isinstance(leaf, torch.Tensor) else leaf)
            elif leaf != wanted:
                raise ArgumentError(f"{self.name} was read for {wanted!r}, got {leaf!r}")
        return found

    def nested(self, outputs: Sequence[Array], inputs: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """What the module would return: tensors where an input is one, otherwise arrays."""
        pytree, torch = torch_package().utils._pytree, torch_package()
        asked = any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves((tuple(inputs), dict(keywords))))
        leaves = [
            (tensor_of(outputs[leaf.number]) if asked else outputs[leaf.number]) if isinstance(leaf, Here) else leaf
            for leaf in self.made
        ]
        return pytree.tree_unflatten(leaves, self.outputs)
