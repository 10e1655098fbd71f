"""A call of an ATen operator, with the values that it reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tensorlang import dtypes, te
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Expr, cast
from tensorlang.networks.elements import nonzero
from tensorlang.networks.network import Array, Value, Weights
from tensorlang.networks.node import Node, element_of, shape_of
from tensorlang.networks.onnx.rules import RULES as ONNX
from tensorlang.networks.refusal import Unsupported
from tensorlang.te.operation import Tensor

Operand: TypeAlias = Value | int | float | bool
Made: TypeAlias = tuple[tuple[int, ...], str]
"""The shape and the dtype of an output."""
_OPSET = 22


@dataclass(frozen=True, slots=True)
class Call:
    """An operator with its arguments by the names of its schema: values, numbers, words, lists of them, or None.

    `made` describes its outputs, of which those in `used` are read by anyone; `promoted` is the dtype in which PyTorch
    would compute with the tensors and numbers among some arguments.
    """

    op: str
    stage: str
    given: Mapping[str, Any]
    made: tuple[Made, ...]
    used: frozenset[int]
    weights: Weights
    promoted: Callable[..., str]

    def __getitem__(self, name: str) -> Any:
        return self.given[name]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the (first) output."""
        return self.made[0][0]

    @property
    def dtype(self) -> str:
        """The dtype of the (first) output."""
        return self.made[0][1]

    def tensor(self, value: Value) -> Tensor:
        """A value as a tensor of the program."""
        return value if isinstance(value, Tensor) else self.weights.tensor(value)

    def known(self, name: str) -> Array:
        """An argument that has to be known before the network runs."""
        value = self.given[name]
        if isinstance(value, Tensor):
            raise Unsupported(f"{name} is computed by the network; only what is known ahead is taken")
        return np.asarray(value)

    def only_first(self, what: str) -> None:
        """Unsupported where other outputs than the first are read."""
        if self.used - {0}:
            raise Unsupported(f"{what} is asked for as well")

    def compute(self, shape: Sequence[int], element: Callable[..., Any], part: str = "") -> Tensor:
        """A stage of the program, named after the call."""
        made = te.compute(tuple(shape), element, name=self._named(part))
        assert isinstance(made, Tensor)
        return made

    def onnx(self, op: str, *inputs: Value | None, part: str = "", **attributes: Any) -> Tensor:
        """The (first) output of an operator of ONNX; a known one becomes a weight."""
        return self.onnx_all(op, *inputs, part=part, **attributes)[0]

    def onnx_all(
        self, op: str, *inputs: Value | None, outputs: int = 1, part: str = "", **attributes: Any
    ) -> tuple[Tensor, ...]:
        """The outputs of an operator of ONNX."""
        made = ONNX[op](Node(op, self._named(part), attributes, _OPSET, inputs, outputs, self.weights))
        return tuple(self.tensor(v) for v in (made if isinstance(made, tuple) else (made,)))

    def pointwise(
        self, function: Callable[..., Expr], *operands: Operand, dtype: str | None = None, part: str = ""
    ) -> Tensor:
        """A function of elements, computed in a dtype (that of the output unless given), broadcast as NumPy does."""
        inside = dtype or self.dtype
        values = [np.asarray(v, dtypes.info(inside).numpy) if isinstance(v, int | float) else v for v in operands]
        shape = np.broadcast_shapes(*map(shape_of, values))

        def element(*index: Expr) -> Expr:
            read = [
                converted(element_of(value, lambda value=value: self.tensor(value), index), inside)  # type: ignore[misc]
                for value in values
            ]
            return converted(function(*read), self.dtype if not part else None)

        return self.compute(shape, element, part)

    def cast(self, value: Value, dtype: str, part: str = "cast") -> Value:
        """A value in another dtype."""
        if not isinstance(value, Tensor):
            return value.astype(dtypes.info(dtype).numpy, copy=False)
        if value.dtype == dtype:
            return value
        return self.compute(shape_of(value), lambda *i: converted(value(*i), dtype), part)

    def _named(self, part: str) -> str:
        return f"{self.stage}_{part}" if part else self.stage


Rule: TypeAlias = Callable[[Call], Value | tuple[Value | None, ...]]


def converted(x: Expr, dtype: str | None) -> Expr:
    """An expression in a dtype; None leaves it as it is."""
    if dtype is None or x.dtype == dtype:
        return x
    return nonzero(x) if dtype == "bool" else cast(x, dtype)


def is_float(dtype: str) -> bool:
    """Whether a dtype is one of floats."""
    return dtypes.info(dtype).is_float
