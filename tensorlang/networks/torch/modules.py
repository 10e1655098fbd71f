"""From a module of PyTorch to a network, through `torch.export`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from tensorlang import te
from tensorlang.errors import DefinitionError
from tensorlang.networks.network import Network
from tensorlang.networks.node import own_stages
from tensorlang.networks.refusal import UnsupportedModel
from tensorlang.networks.torch.nests import Here, Nest
from tensorlang.networks.torch.package import torch_package
from tensorlang.networks.torch.reading import Reading, fixed, name_of
from tensorlang.networks.torch.rules import RULES
from tensorlang.networks.torch.values import dtype_of


def from_torch(module: Any, example: Any, keywords: Mapping[str, Any] | None = None) -> Network:
    """Return the network of a module of PyTorch, for inputs of the shapes and dtypes of an example.

    `example` is a tensor, or a tuple of inputs, which may be nests of tuples, lists and dicts of tensors; `keywords`
    are inputs by name. Compiled, the network is called as the module is, and returns what it does. The module is in
    evaluation mode. It is exported by `torch.export`; whatever can be known ahead is evaluated, and other weights are
    shared with the module: read it again when they have changed. Raises UnsupportedModel, which names every operator
    that is not taken, and why; DefinitionError for modules that `torch.export` does not take, or that change their
    buffers; MissingDependency without PyTorch.
    """
    torch = torch_package()
    if not isinstance(module, torch.nn.Module):
        raise DefinitionError(f"from_torch takes a torch.nn.Module, got {type(module).__name__}")
    if module.training:
        raise DefinitionError(f"{type(module).__name__} is in training mode; call its eval() first")
    inputs = example if isinstance(example, tuple) else (example,)
    return _network(type(module).__name__, _exported(module, inputs, dict(keywords or {})), inputs, keywords or {})


def _exported(module: Any, inputs: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
    """The module as a program of ATen operators, all of which have no effects."""
    torch = torch_package()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program = torch.export.export(module, inputs, dict(keywords), strict=False)
            return program.run_decompositions(kept(torch.export.default_decompositions()))
        except Exception as error:  # what user code and the exporter raise has no common class
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            why = lines[0] if lines else type(error).__name__
            raise DefinitionError(f"torch.export does not take {type(module).__name__}: {why}") from error


def kept(decompositions: Mapping[Any, Any]) -> dict[Any, Any]:
    """Decompositions but for those of operators that have a rule of their own."""
    return {op: way for op, way in decompositions.items() if name_of(op) not in RULES}


def _network(name: str, program: Any, inputs: tuple[Any, ...], keywords: Mapping[str, Any]) -> Network:
    signature, reading = program.graph_signature, Reading()
    held = {**program.state_dict, **program.constants}
    places = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    given: dict[str, te.Tensor] = {}
    leaves: list[Any] = []
    for spec in signature.input_specs:
        if spec.kind.name != "USER_INPUT":
            reading.values[places[spec.arg.name]] = held[spec.target]
        elif hasattr(spec.arg, "value"):
            leaves.append(spec.arg.value)
            reading.values[places[spec.arg.name]] = spec.arg.value
        else:
            tensor = places[spec.arg.name].meta["val"]
            leaves.append(Here(len(given)))
            given[spec.arg.name] = te.placeholder(fixed(tensor.shape), dtype_of(tensor.dtype), f"input{len(given)}")
            reading.values[places[spec.arg.name]] = given[spec.arg.name]
    changed = [spec.target for spec in signature.output_specs if spec.kind.name != "USER_OUTPUT"]
    if changed:
        what = ", ".join(map(str, changed))
        raise DefinitionError(f"{name} changes its buffers or inputs when it is called: {what}")
    reading.read(program.graph.nodes)
    if reading.refused:
        raise UnsupportedModel(name, reading.refused)
    return _whole(name, program, reading, given, leaves)


def _whole(name: str, program: Any, reading: Reading, given: Mapping[str, te.Tensor], leaves: list[Any]) -> Network:
    nodes, torch = {node.name: node for node in program.graph.nodes}, torch_package()
    names: list[str] = []
    values, made = [], list[Any]()
    for spec in program.graph_signature.output_specs:
        if hasattr(spec.arg, "value"):
            made.append(spec.arg.value)
            continue
        value = reading.values[nodes[spec.arg.name]]
        made.append(Here(len(names)))
        names.append(spec.arg.name if spec.arg.name not in names else f"{spec.arg.name}_{len(names)}")
        values.append(reading.array(value) if isinstance(value, torch.Tensor) else value)
    spec = program.call_spec
    nest = Nest(name, spec.in_spec, tuple(leaves), spec.out_spec, tuple(made))
    outputs = own_stages(values, reading.weights)
    inputs = tuple(given.values())
    return Network(name, inputs, outputs, reading.weights.arrays, tuple(given), tuple(names), reading.origins, nest)
