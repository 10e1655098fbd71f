"""What of a graph of ATen operators becomes networks, and what stays with PyTorch: judged call by call, by rules."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from tensorlang import te
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError, TensorlangError
from tensorlang.networks.refusal import Refusal, Unsupported
from tensorlang.networks.torch.package import torch_package
from tensorlang.networks.torch.reading import Reading, fixed, name_of
from tensorlang.networks.torch.values import dtype_of

VIEWS = frozenset({
    "alias.default", "as_strided.default", "detach.default", "diagonal.default", "expand.default", "getitem",
    "permute.default", "select.int", "slice.Tensor", "split.Tensor", "split_with_sizes.default", "squeeze.default",
    "squeeze.dim", "squeeze.dims", "t.default", "transpose.int", "unbind.int", "unfold.default", "unsqueeze.default",
    "view.default",
})  # fmt: skip
"""Calls that PyTorch makes without touching an element."""


@dataclass(slots=True)
class Shares:
    """The calls of a graph that are `taken`, values of those that are `known` ahead, and what is `left`, and why."""

    taken: set[Any] = field(default_factory=set)
    known: dict[Any, Any] = field(default_factory=dict)
    left: dict[Any, Refusal] = field(default_factory=dict)

    def is_node_supported(self, submodules: Mapping[str, Any], node: Any) -> bool:
        """The question of PyTorch's partitioner."""
        return node in self.taken

    def leave(self, node: Any, why: str) -> None:
        """Leave a call to PyTorch."""
        self.taken.discard(node)
        self.left[node] = Refusal(node.name, name_of(node.target), why)


def shares_of(graph: Any, known: Mapping[Any, Any]) -> Shares:
    """Try the rule of each call by itself, with the values that are known ahead."""
    shares = Shares(known=dict(known))
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        source = node.args[0] if node.target is operator.getitem else None
        if source in shares.known:
            shares.known[node] = shares.known[source][node.args[1]]
        elif source is not None:
            shares.taken |= {node} if source in shares.taken else set()
        else:
            _try(node, shares)
    return shares


def _try(node: Any, shares: Shares) -> None:
    torch = torch_package()
    try:
        stand_ins = {given: _stand_in(given, shares) for given in node.all_input_nodes}
        made = Reading(stand_ins).made(node)
    except TensorlangError as error:
        shares.leave(node, error.message if isinstance(error, DefinitionError) else str(error))
        return
    if any(isinstance(value, torch.Tensor) for value in (made if isinstance(made, list | tuple) else [made])):
        shares.known[node] = made
    else:
        shares.taken.add(node)


def _stand_in(node: Any, shares: Shares) -> Any:
    """A tensor of the program in place of what a node makes, or its value where that is known."""
    if node in shares.known:
        return shares.known[node]
    value = node.meta.get("val")
    if isinstance(value, torch_package().SymInt):
        (number,) = fixed([value])
        return number
    return placeholder_of(node, "given")


def placeholder_of(node: Any, name: str) -> te.Tensor:
    """A placeholder for what a node makes; Unsupported for what no program has."""
    value, torch = node.meta.get("val"), torch_package()
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        raise Unsupported(f"{node.name}, which it reads, is no plain tensor")
    if value.device.type != "cpu":
        raise Unsupported(f"{node.name}, which it reads, is on {value.device}")
    return te.placeholder(fixed(value.shape), dtype_of(value.dtype), name)


def copy_views(graph: Any, shares: Shares) -> None:
    """Make views of what no network makes twice, for networks and for others: out of a network they are copies."""
    copies: dict[Any, Any] = {}
    for node in list(graph.nodes):
        is_view = node in shares.taken and name_of(node.target) in VIEWS
        if is_view and all(given in copies or given not in shares.taken for given in node.all_input_nodes):
            with graph.inserting_after(node):
                copies[node] = graph.node_copy(node, lambda given: copies.get(given, given))
    made = set(copies.values())
    for node, copy in copies.items():
        for user in [u for u in node.users if u not in shares.taken and u not in made]:
            user.replace_input_with(node, copy)
    graph.eliminate_dead_code()


def partitions_of(module: Any, shares: Shares) -> Iterator[list[Any]]:
    """Calls that become a network each; those that PyTorch does without touching an element stay with it."""
    torch_package()
    from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner

    found = CapabilityBasedPartitioner(module, shares, allows_single_node_partition=True).propose_partitions()
    for partition in found:
        nodes = list(partition.nodes)
        if all(name_of(node.target) in VIEWS for node in nodes):
            for node in nodes:
                if node.target is not operator.getitem:
                    shares.leave(node, "no element is computed: PyTorch makes a view")
        else:
            yield nodes
