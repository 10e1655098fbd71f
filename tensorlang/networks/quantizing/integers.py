"""Arrays of uint8 levels, and products of them by int8 weights, as quantized models of ONNX have them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tensorlang import te
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Expr, Load, cast
from tensorlang.networks.elements import saturated
from tensorlang.networks.network import Array
from tensorlang.networks.quantizing.products import Product
from tensorlang.networks.quantizing.ranges import LEAST_SCALE, Levels
from tensorlang.networks.quantizing.writing import Writer, framed
from tensorlang.te.operation import ComputeOp, Reduce
from tensorlang.te.reducer import builtin

_LARGEST = 127
"""Weights are from minus this number to it."""


@dataclass(frozen=True, slots=True)
class Integers:
    """The format of uint8, with `levels` for each array."""

    levels: Mapping[str, Levels]

    @property
    def dtype(self) -> str:
        """That of the numbers."""
        return "uint8"

    def rounded(self, value: Expr, array: str) -> Expr:
        """The next level."""
        levels = self.levels[array]
        return saturated(value * te.const(1 / levels.scale, "float32"), te.const(levels.zero, "uint8"), "uint8")

    def meant(self, number: Load, array: str) -> Expr:
        """What a level stands for."""
        levels, whole = self.levels[array], cast(number, "int32")
        whole = whole - levels.zero if levels.zero else whole
        return cast(whole, "float32") * te.const(levels.scale, "float32")

    def constant(self, value: float, array: str) -> Expr:
        """The level of a number."""
        return te.const(self.levels[array].of(value), "uint8")

    def add_product(self, writer: Writer, product: Product) -> None:
        """A sum of integers, less what the zero of the data adds to it, and what it stands for."""
        op, levels = product.op, self.levels[product.data.buffer.name]
        weight, scale = integers_of(writer.weights[product.weight.buffer.name], product.columns)
        data = framed(writer, product, te.const(levels.zero, "uint8"))
        factor = Load(writer.weight(f"{op.name}_weight", weight), product.weight.index)
        (old,) = op.body
        assert isinstance(old, Reduce)
        term = cast(data, "int32") * cast(factor, "int32")
        total = Reduce(builtin("sum", "int32"), (term,), old.axes, None, 0, "int32")
        sums = writer.add(replace(op, name=writer.name(f"{op.name}_integers"), body=(total,)))
        place = tuple(a.var for a in op.axes)
        column = tuple(product.weight.index[d] for d in product.columns)
        found: Expr = Load(sums, place)
        extra = levels.zero * _summed(weight, product.columns)
        if extra.any():
            found = found - Load(writer.weight(f"{op.name}_extra", extra), column)
            found = Load(writer.add(ComputeOp(writer.name(f"{op.name}_less"), op.axes, (), (found,))), place)
        scales = writer.weight(f"{op.name}_scale", np.asarray(scale * np.float32(levels.scale), np.float32))
        writer.add(ComputeOp(op.name, op.axes, (), (cast(found, "float32") * Load(scales, column),)))


def integers_of(weight: Array, columns: tuple[int, ...]) -> tuple[Array, Array]:
    """Weights as int8, and the scale of each column: the largest is 127 times that."""
    others = tuple(d for d in range(weight.ndim) if d not in columns)
    scale = np.abs(weight).max(others, keepdims=True) / np.float32(_LARGEST)
    scale = np.where(scale >= LEAST_SCALE, scale, np.float32(1))
    return np.rint(weight / scale).astype(np.int8), scale.reshape([weight.shape[d] for d in columns])


def _summed(weight: Array, columns: tuple[int, ...]) -> Array:
    """The sum of the weights of each column."""
    others = tuple(d for d in range(weight.ndim) if d not in columns)
    return np.asarray(weight.sum(others, dtype=np.int32), np.int32)
