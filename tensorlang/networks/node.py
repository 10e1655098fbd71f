"""A node of a model, as rules of ONNX read it: an operator with attributes, and the values that it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tensorlang import te
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Expr, as_expr
from tensorlang.networks.integers import Quantized
from tensorlang.networks.network import Array, Value, Weights
from tensorlang.networks.refusal import NotAhead, Unsupported
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import ComputeOp, Tensor


@dataclass(frozen=True, slots=True)
class Node:
    """An operator with its attributes, under the rules of an `opset`; an input that is left out is None.

    `meanings` are the integers that inputs were made of, where they were.
    """

    op: str
    stage: str
    attrs: Mapping[str, Any]
    opset: int
    inputs: tuple[Value | None, ...]
    outputs: int
    weights: Weights
    meanings: tuple[Quantized | None, ...] = ()

    def has(self, place: int) -> bool:
        """Whether an input is given."""
        return place < len(self.inputs) and self.inputs[place] is not None

    def value(self, place: int) -> Value:
        """An input; Unsupported when it is missing."""
        value = self.inputs[place] if place < len(self.inputs) else None
        if value is None:
            raise Unsupported(f"{self.op} has no input {place}")
        return value

    def tensor(self, place: int) -> Tensor:
        """An input as a tensor of the program."""
        value = self.value(place)
        return value if isinstance(value, Tensor) else self.weights.tensor(value)

    def integers(self, place: int, zero: int) -> Quantized:
        """An input of integers with the input that is their zero."""
        one = np.ones((), np.float32)
        return Quantized(self.value(place), one, self.value(zero) if self.has(zero) else None, -1)

    def meaning(self, place: int) -> Quantized | None:
        """The integers that an input was made of."""
        return self.meanings[place] if place < len(self.meanings) else None

    def known(self, place: int, what: str) -> Array:
        """An input that has to be known before the network runs."""
        value = self.value(place)
        if isinstance(value, Tensor):
            raise NotAhead(what, self.op, value)
        return value

    def numbers(self, place: int, attribute: str, usual: Sequence[int] | None = None) -> list[int] | None:
        """Whole numbers that are an attribute in old opsets and an input in new ones."""
        if attribute in self.attrs:
            return [int(n) for n in self.attrs[attribute]]
        if self.has(place):
            return [int(n) for n in self.known(place, attribute).ravel()]
        return None if usual is None else list(usual)

    def shape(self, place: int) -> tuple[int, ...]:
        """The shape of an input."""
        return shape_of(self.value(place))

    def compute(self, shape: Sequence[int], element: Callable[..., Any], **options: Any) -> Tensor:
        """A stage of the program, named after the node."""
        made = te.compute(tuple(shape), element, name=self.stage, **options)
        assert isinstance(made, Tensor)
        return made


Rule: TypeAlias = Callable[[Node], Value | tuple[Value, ...]]


def shape_of(value: Value) -> tuple[int, ...]:
    """The extents of a value as numbers."""
    if not isinstance(value, Tensor):
        return value.shape
    found = [extent_of(extent) for extent in value.shape]
    if any(n is None for n in found):
        raise Unsupported(f"{value} has no fixed shape")
    return tuple(n for n in found if n is not None)


def element_of(value: Value, tensor: Callable[[], Tensor], index: Sequence[Expr]) -> Expr:
    """The element of a value that is broadcast to a larger shape; a known number stands in the program.

    So does one that is in all places of an array, whose strides are 0 then.
    """
    if not isinstance(value, Tensor) and value.size and (value.size == 1 or not any(value.strides)):
        return te.const(value.ravel()[0].item(), str(value.dtype))
    shape = shape_of(value)
    own = [*[as_expr(0)] * (len(shape) - len(index)), *index[max(0, len(index) - len(shape)) :]]
    return tensor()(*(0 if n == 1 else i for n, i in zip(shape, own, strict=True)))


def pointwise(node: Node, function: Callable[..., Any], *places: int) -> Tensor:
    """A function of elements of inputs, broadcast as NumPy does."""
    values = [node.value(place) for place in places]
    try:
        shape = np.broadcast_shapes(*map(shape_of, values))
    except ValueError:
        given = ", ".join(str(shape_of(value)) for value in values)
        raise Unsupported(f"{node.op} of {given}, which cannot be broadcast to one shape") from None

    def element(*index: Expr) -> Expr:
        read = [
            element_of(value, lambda place=place: node.tensor(place), index)  # type: ignore[misc]
            for place, value in zip(places, values, strict=True)
        ]
        made: Expr = function(*read)
        return made

    return node.compute(shape, element)


def axis_of(axis: int, rank: int, op: str) -> int:
    """An axis counted from the front."""
    if not -rank <= axis < max(rank, 1):
        raise Unsupported(f"{op} along axis {axis} of {rank} dimensions")
    return axis % rank if rank else 0


def own_stages(values: Iterable[Value], weights: Weights) -> tuple[Tensor, ...]:
    """Outputs as stages of their own: what is an input, known ahead, or an output already, is copied."""
    made: list[Tensor] = []
    for number, value in enumerate(values):
        tensor = value if isinstance(value, Tensor) else weights.tensor(value)
        taken = any(tensor.op is other.op for other in made)
        if taken or not isinstance(tensor.op, ComputeOp) or tensor.op.num_outputs > 1:
            tensor = te.compute(tensor.shape, lambda *i, of=tensor: of[i], name=f"output{number}")
        made.append(tensor)
    return tuple(made)
