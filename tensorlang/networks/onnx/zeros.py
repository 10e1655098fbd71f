"""Zeros and scales of integers as stages of a program."""

from __future__ import annotations

import numpy as np

from tensorlang import te
from tensorlang.ir.expr import Expr, cast
from tensorlang.networks.integers import Quantized
from tensorlang.networks.network import Array
from tensorlang.networks.node import Node, shape_of
from tensorlang.te.operation import Tensor


def less(node: Node, sums: Tensor, zero: int | Tensor, totals: Array) -> Tensor:
    """Sums less a zero times a number for each index of their last axis."""
    if isinstance(zero, int) and not (zero * totals).any():
        return sums
    held = node.weights.tensor(totals if isinstance(zero, Tensor) else np.asarray(zero * totals, np.int32))

    def element(*index: Expr) -> Expr:
        offset = held(index[-1])
        return sums(*index) - (cast(zero(), "int32") * offset if isinstance(zero, Tensor) else offset)

    made: Tensor = te.compute(sums.shape, element, name=f"{node.stage}_less")
    return made


def scaled(node: Node, sums: Tensor, scale: Array) -> Tensor:
    """What sums stand for: times one number, or one for each index of their last axis."""
    held = node.weights.tensor(scale)

    def element(*index: Expr) -> Expr:
        factor = held(index[-1]) if scale.size > 1 else te.const(float(scale[0]), "float32")
        return cast(sums(*index), "float32") * factor

    made: Tensor = te.compute(sums.shape, element, name=f"{node.stage}_scaled")
    return made


def less_zero(node: Node, factor: Quantized, axis: int, word: str) -> Tensor:
    """Integers less their zeros, which are one number or one for each index of an axis, in 32 bits."""
    data, zero = factor.data, factor.zero
    tensor = data if isinstance(data, Tensor) else node.weights.tensor(data)
    held = zero if zero is None or isinstance(zero, Tensor) else node.weights.tensor(zero)

    def element(*i: Expr) -> Expr:
        whole = cast(tensor(*i), "int32")
        if held is None:
            return whole
        shape = shape_of(held)
        at = [0] * len(shape) if np.prod(shape) == 1 else [i[axis]] if len(shape) == 1 else list(i)
        return whole - cast(held(*at), "int32")

    made: Tensor = te.compute(tensor.shape, element, name=f"{node.stage}_{word}")
    return made
