"""Integers that stand for other numbers, and factors of products of them.

Where the weights are known, sums are made of the numbers as they lie, for which there are dot instructions; what the
zero of the data adds to them is one number for each column, which is subtracted.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tensorlang.dataclass import dataclass
from tensorlang.networks.network import Array, Value
from tensorlang.te.operation import Tensor


def along(numbers: Array, axis: int, rank: int) -> Array:
    """One number, or one for each index of an axis of arrays of so many dimensions."""
    if numbers.size == 1:
        return numbers.reshape(())
    return numbers.reshape([-1 if d == axis % rank else 1 for d in range(rank)])


@dataclass(frozen=True, slots=True, eq=False)
class Quantized:
    """What numbers stand for: `(data - zero) * scale`. Scale and zero are one number, or one for each of an axis."""

    data: Value
    scale: Value
    zero: Value | None
    axis: int

    @property
    def single_zero(self) -> int | Tensor | None:
        """The zero where it is one number, or a tensor of one that the network computes."""
        if self.zero is None:
            return 0
        if isinstance(self.zero, Tensor):
            return self.zero if self.zero.ndim == 0 else None
        return int(self.zero.ravel()[0]) if self.zero.size == 1 else None

    @property
    def transposed(self) -> Quantized:
        """A known matrix the other way round; itself where it is not known."""
        if isinstance(self.data, Tensor):
            return self
        return replace(self, data=self.data.T, axis=1 - self.axis)

    def moved(self, axis: int) -> Array | None:
        """Known data less their zeros as int8; None where they are not known, do not fit, or have another axis."""
        if isinstance(self.data, Tensor) or isinstance(self.zero, Tensor) or self.data.dtype.itemsize > 1:
            return None
        whole = self.data.astype(np.int32)
        if self.zero is not None:
            if self.zero.size > 1 and self.axis != axis:
                return None
            whole = whole - along(self.zero.astype(np.int32), axis, whole.ndim)
        fits = whole.min(initial=0) >= -128 and whole.max(initial=0) <= 127
        return whole.astype(np.int8) if fits else None


@dataclass(frozen=True, slots=True, eq=False)
class Factors:
    """Data with one zero, weights without, and what their products are scaled by: one number, or one a column."""

    data: Tensor
    zero: int | Tensor
    weight: Array
    scale: Array

    def totals(self, axis: int) -> Array:
        """The sums of the weights for each index of an axis: so many times the zero is in the sums."""
        others = tuple(d for d in range(self.weight.ndim) if d != axis)
        return np.asarray(self.weight.sum(others, dtype=np.int32), np.int32)


def factors_of(a: Quantized | None, b: Quantized | None, axis: int) -> Factors | None:
    """Factors whose products are those of the integers; None unless all that this takes is known ahead.

    `axis`: that of the weights `b` which the result has.
    """
    if a is None or b is None or not isinstance(a.data, Tensor) or a.data.dtype not in ("int8", "uint8"):
        return None
    weight, zero = b.moved(axis), a.single_zero
    if weight is None or zero is None or isinstance(a.scale, Tensor) or isinstance(b.scale, Tensor):
        return None
    if a.scale.size != 1 or (b.scale.size != 1 and b.axis != axis):
        return None
    return Factors(a.data, zero, weight, np.asarray(a.scale.ravel() * b.scale.ravel(), np.float32))
