"""Weights of a file, laid out for products once, in the bits that the file has them in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

import tensorlang
from tensorlang import nd, te, topi
from tensorlang.gguf import GgufTensor
from tensorlang.topi.block_formats import BLOCK_FORMATS

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of float32 that several products take, quantized once for all weights whose blocks are of one size."""

    data: te.Tensor
    quantized: dict[int, topi.QuantizedBlocks] = field(default_factory=dict)

    def blocks(self, size: int) -> topi.QuantizedBlocks:
        """The rows in bytes."""
        if size not in self.quantized:
            self.quantized[size] = topi.quantize_blocks(self.data, size, f"{self.data.name}_by_{size}")
        return self.quantized[size]


@dataclass(frozen=True, slots=True)
class Shape:
    """What a product knows of weights [n, k] while it is compiled: how they are held."""

    format: str
    n: int
    k: int

    def placeholders(self, name: str) -> tuple[list[te.Tensor], Callable[[Rows], te.Tensor]]:
        """The tensors that hold the weights, and the product of rows with them."""
        if self.format in BLOCK_FORMATS:
            form = BLOCK_FORMATS[self.format]
            weights = topi.nbits_weights(self.n, self.k, form, name)
            return weights.tensors, lambda rows: topi.matmul_nbits(rows.blocks(form.block), weights, f"{name}_product")
        weight = te.placeholder((self.n, self.k), self.format, name)
        return [weight], lambda rows: topi.dense(rows.data, weight, name=f"{name}_product")


@dataclass(frozen=True, slots=True)
class Weights:
    """The arrays that hold weights, and how they do it."""

    shape: Shape
    arrays: tuple[Array, ...]


def weights_of(tensors: Sequence[tuple[GgufTensor, Array | None]]) -> list[Weights]:
    """Lay out tensors [n, k], the rows of each in another order if that is given, together in huge pages."""
    arrays = [tensor.array if order is None else tensor.array[order] for tensor, order in tensors]
    shapes = [Shape(tensor.format, *tensor.shape) for tensor, _ in tensors]
    held: list[list[Any]] = [_tensors(shape) or [array] for shape, array in zip(shapes, arrays, strict=True)]
    made = iter(nd.empty_together([each for some in held for each in some]))
    found = [Weights(shape, tuple(islice(made, len(some)))) for shape, some in zip(shapes, held, strict=True)]
    for weights, array in zip(found, arrays, strict=True):
        if weights.shape.format in BLOCK_FORMATS:
            _packing(weights.shape)(np.ascontiguousarray(array), *weights.arrays)
        else:
            weights.arrays[0][...] = array
    return found


def _tensors(shape: Shape) -> list[Any]:
    """What weights in blocks are laid out as; none for others, which stay as they are."""
    form = BLOCK_FORMATS.get(shape.format)
    return [] if form is None else topi.nbits_weights(shape.n, shape.k, form).tensors


def halves(heads: int, depth: int) -> Array:
    """The order of rows by which neighbours of a pair that is turned become elements of two halves of their head."""
    head = np.concatenate([np.arange(0, depth, 2), np.arange(1, depth, 2)])
    order: Array = np.arange(heads)[:, None] * depth + head
    return order.reshape(-1)


@cache
def _packing(shape: Shape) -> Any:
    form = BLOCK_FORMATS[shape.format]
    blocks = te.placeholder((shape.n, shape.k // form.weights, form.bytes), "uint8", "blocks")
    packed = topi.pack_nbits(blocks, shape.format)
    return tensorlang.build(topi.schedule(packed.tensors), [blocks, *packed.tensors])
