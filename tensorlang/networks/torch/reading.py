"""From a graph of ATen operators to a network: call by call, with all that is known ahead evaluated on the way."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError, InternalError, TensorlangError
from tensorlang.networks.network import Array, Origin, Value, Weights
from tensorlang.networks.node import shape_of
from tensorlang.networks.refusal import Refusal, Unsupported, refuse_large
from tensorlang.networks.torch.call import Call, Made
from tensorlang.networks.torch.package import torch_package
from tensorlang.networks.torch.rules import RULES
from tensorlang.networks.torch.values import array_of, dtype_of, tensor_of
from tensorlang.te.operation import Tensor

_MODES = ("layout", "device", "pin_memory", "memory_format", "non_blocking")
"""Arguments that say nothing of elements."""
_ASSERTED = "_assert_tensor_metadata.default"
"""A question for dtypes and devices, which are those of the example."""


@dataclass(slots=True)
class Reading:
    """A graph as far as it is read: values of its nodes, what was refused, and the stages that calls made.

    A value is a tensor of the program, or a tensor of PyTorch that is known ahead; or what else a graph holds. Nodes
    that are `skipped` need what a refused one would have made.
    """

    values: dict[Any, Any] = field(default_factory=dict)
    weights: Weights = field(default_factory=Weights)
    refused: list[Refusal] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    origins: dict[str, Origin] = field(default_factory=dict)
    _arrays: dict[int, tuple[Any, Array]] = field(default_factory=dict)

    def read(self, nodes: Iterable[Any]) -> None:
        """Add what calls make to the values; what cannot be made is refused, and so is not what needs it."""
        for node in nodes:
            if node.op != "call_function" or node in self.values or name_of(node.target) == _ASSERTED:
                continue
            if any(given not in self.values for given in node.all_input_nodes):
                self.skipped.append(node.name)
                continue
            try:
                self.values[node] = self.made(node)
            except InternalError:
                raise
            except TensorlangError as error:
                why = error.message if isinstance(error, DefinitionError) else str(error)
                self.refused.append(Refusal(node.name, name_of(node.target), why))

    def made(self, node: Any) -> Any:
        """What a call makes, of the values so far."""
        args, keywords = _filled(node.args, self.values), _filled(node.kwargs, self.values)
        if node.target is operator.getitem:
            return args[0][args[1]]
        if getattr(getattr(node.target, "_schema", None), "is_mutable", False):
            raise Unsupported("it changes what it is given")
        if not any(isinstance(value, Tensor) for value in _leaves((args, keywords))) and not _is_random(node.target):
            return evaluated(node.target, args, keywords, node)
        op = name_of(node.target)
        if op not in RULES:
            raise Unsupported(
                "it draws random numbers" if _is_random(node.target) else "this operator is not known yet"
            )
        made = described(node)
        for shape, dtype in made:
            refuse_large("its output", shape, dtypes.info(dtype).bytes)
        given = {name: self._as_values(value) for name, value in _bound(node.target, args, keywords).items()}
        stage = f"{_word(op)}{len(self.origins)}"
        self.origins[stage] = Origin(node.name, op)
        call = Call(op, stage, given, made, _used(node), self.weights, _promoted)
        found = tuple(_as_tensor(value) for value in _result(call))
        return found if isinstance(_value(node), list | tuple) else found[0]

    def array(self, tensor: Any) -> Array:
        """The array of a known tensor, one for each tensor."""
        if id(tensor) not in self._arrays:
            self._arrays[id(tensor)] = tensor, array_of(tensor)
        return self._arrays[id(tensor)][1]

    def _as_values(self, value: Any) -> Any:
        """An argument with known tensors as arrays."""
        if isinstance(value, list | tuple):
            return [self._as_values(v) for v in value]
        return self.array(value) if isinstance(value, torch_package().Tensor) else value


def _as_tensor(value: Value | None) -> Any:
    """What a rule makes, as a tensor of PyTorch where it is known: one number in all places stays one in memory."""
    if not isinstance(value, np.ndarray):
        return value
    if value.size and not any(value.strides):
        return tensor_of(np.array(value.ravel()[0])).expand(value.shape)
    return tensor_of(np.require(value, requirements=["C", "W"]))


def _result(call: Call) -> tuple[Value | None, ...]:
    """What a rule makes, which has to be what PyTorch says that it is."""
    try:
        made = RULES[call.op](call)
    except TensorlangError:
        raise
    except Exception as error:
        raise InternalError(f"{call.op}: {type(error).__name__}: {error}") from error
    found = made if isinstance(made, tuple) else (made,)
    for k, (value, wanted) in enumerate(zip(found, call.made, strict=True)):
        if value is not None and (shape_of(value), str(value.dtype)) != wanted:
            raise InternalError(f"{call.op} made {value.dtype}{shape_of(value)} for {wanted[1]}{wanted[0]}")
        if value is None and k in call.used:
            raise InternalError(f"{call.op} has not made its output {k}")
    return found


def evaluated(target: Any, args: Sequence[Any], keywords: Mapping[str, Any], node: Any) -> Any:
    """What PyTorch makes of a call of which all is known ahead."""
    torch = torch_package()
    from torch.utils._python_dispatch import _disable_current_modes

    for shape, dtype in described(node) if isinstance(target, torch._ops.OpOverload) else ():
        refuse_large("its output", shape, dtypes.info(dtype).bytes)
    with _disable_current_modes(), torch.no_grad():
        return target(*args, **keywords)


def described(node: Any) -> tuple[Made, ...]:
    """Shapes and dtypes of what a call makes; Unsupported where they are not fixed."""
    value = _value(node)
    torch = torch_package()
    found: list[Made] = []
    for tensor in value if isinstance(value, list | tuple) else [value]:
        if not isinstance(tensor, torch.Tensor):
            raise Unsupported("what it makes is no tensor")
        found.append((fixed(tensor.shape), dtype_of(tensor.dtype)))
    return tuple(found)


def fixed(shape: Iterable[Any]) -> tuple[int, ...]:
    """A shape as numbers; Unsupported for one that is symbolic."""
    extents = tuple(n if isinstance(n, int) else n.node.maybe_as_int() or n for n in shape)
    if not all(isinstance(n, int) for n in extents):
        raise Unsupported(f"the shape ({', '.join(map(str, extents))}) is not fixed; give examples of fixed shapes")
    return extents


def name_of(target: Any) -> str:
    """An operator by its name, without that of ATen."""
    return str(target).removeprefix("aten.") if not callable(target) or hasattr(target, "_schema") else target.__name__


def _value(node: Any) -> Any:
    return node.meta.get("val")


def _used(node: Any) -> frozenset[int]:
    """The outputs of a call that anyone reads."""
    if not isinstance(_value(node), list | tuple):
        return frozenset({0})
    return frozenset(u.args[1] for u in node.users if u.target is operator.getitem)


def _filled(given: Any, values: Mapping[Any, Any]) -> Any:
    """Arguments with values in place of nodes."""
    return torch_package().fx.node.map_arg(given, lambda node: values[node])


def _leaves(given: Any) -> Iterable[Any]:
    if isinstance(given, list | tuple):
        for value in given:
            yield from _leaves(value)
    elif isinstance(given, dict):
        yield from _leaves(list(given.values()))
    else:
        yield given


def _is_random(target: Any) -> bool:
    torch = torch_package()
    tags = getattr(target, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags


def _bound(target: Any, args: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by the names of the operator's schema, defaults among them."""
    found = {}
    for place, argument in enumerate(target._schema.arguments):
        if argument.name in _MODES:
            continue
        if place < len(args):
            found[argument.name] = args[place]
        else:
            found[argument.name] = keywords.get(argument.name, argument.default_value)
    return found


def _promoted(*operands: Any) -> str:
    """The dtype that PyTorch computes in with tensors and numbers."""
    torch = torch_package()
    stand_ins = [
        torch.empty(
            (1,) * len(shape_of(v)) if isinstance(v, Tensor | np.ndarray) else (),
            dtype=getattr(torch, str(v.dtype)), device="meta",
        ) if isinstance(v, Tensor | np.ndarray) else v
        for v in operands
    ]  # fmt: skip
    return dtype_of(torch.result_type(*stand_ins))


def _word(op: str) -> str:
    """An operator's name as that of a stage."""
    return re.sub(r"\W", "_", op.partition(".")[0]).strip("_") or "stage"
