"""Products with weights of a few bits in blocks, each with a scale: `MatMulNBits`."""

from __future__ import annotations

import math

import numpy as np

from tensorlang import te, topi
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Expr, cast
from tensorlang.networks.network import Array, Value
from tensorlang.networks.node import Node, Rule, shape_of
from tensorlang.networks.places import reshaped
from tensorlang.networks.refusal import Unsupported
from tensorlang.te.operation import Tensor
from tensorlang.topi.nbits import CHUNK, groups_laid_out

_BITS = (2, 4, 8)
_IN_BYTES = 4
"""The accuracy level from which data may be made bytes, block by block."""
_LEAST_BLOCK = 16


@dataclass(frozen=True, slots=True)
class _Weights:
    """Codes [n, k], k a whole number of blocks, scales and zero points [n, k / block]; None: half of the codes."""

    codes: Array
    scales: Array
    zeros: Array | None
    bits: int
    block: int

    @property
    def numbers(self) -> Array:
        """What they stand for, as float32."""
        zeros = np.float32(1 << self.bits - 1) if self.zeros is None else self.zeros.astype(np.float32)
        scales = self.scales.astype(np.float32)
        moved = self.codes.reshape(*scales.shape, self.block).astype(np.float32)
        return np.asarray((moved - np.reshape(zeros, (*np.shape(zeros), 1))) * scales[..., None]).reshape(
            self.codes.shape
        )


def _matmul_nbits(node: Node) -> Value:
    """In bytes where the node allows it (accuracy level 4); else by weights that are unpacked ahead."""
    weights, k = _weights_of(node)
    data, shape = node.tensor(0), node.shape(0)
    if not shape or shape[-1] != k:
        raise Unsupported(f"{node.op} of data {shape}, whose rows are no {k} numbers")
    if node.has(4):
        raise Unsupported(f"{node.op} whose groups are given by an input")
    rows = reshaped(data, (math.prod(shape[:-1]), k), f"{node.stage}_rows")
    in_bytes = int(node.attrs.get("accuracy_level", 0)) == _IN_BYTES
    floats = weights.zeros is not None and weights.zeros.dtype != np.uint8
    made = _in_bytes(node, rows, weights) if in_bytes and not floats else _in_floats(node, rows, weights)
    n = len(weights.codes)
    if node.has(5) and node.shape(5) != (n,):
        raise Unsupported(f"{node.op} with a bias {node.shape(5)} of {n} results")

    def element(i: Expr, j: Expr) -> Expr:
        return cast(made[i, j] + cast(node.tensor(5)[j], "float32") if node.has(5) else made[i, j], data.dtype)

    out = (
        made
        if data.dtype == "float32" and not node.has(5)
        else te.compute(made.shape, element, name=f"{node.stage}_out")
    )
    return reshaped(out, (*shape[:-1], n), f"{node.stage}_whole")


def _in_bytes(node: Node, rows: Tensor, weights: _Weights) -> Tensor:
    """Rows filled up with zeros to whole blocks, and an even number of those where two make a chunk."""
    (n, k), (m, given) = weights.codes.shape, shape_of(rows)
    whole = -(-k // math.lcm(weights.block, CHUNK)) * math.lcm(weights.block, CHUNK)
    blocks = [(0, 0), (0, (whole - k) // weights.block)]
    fields = {"scale": np.pad(weights.scales, blocks)}
    if weights.zeros is not None:
        fields["zero_point"] = np.pad(weights.zeros, blocks)
    form = topi.group_format(weights.bits, weights.block, weights.scales.dtype.name, weights.zeros is not None)
    planes, numbers = groups_laid_out(np.pad(weights.codes, [(0, 0), (0, whole - k)]), form, fields)
    tensor = node.weights.tensor
    packed = topi.NbitsWeights(
        form, n, whole, tuple(map(tensor, planes)), dict(zip(form.fields, map(tensor, numbers), strict=True))
    )
    data = rows
    if given < whole:
        nothing = te.const(0.0, rows.dtype)
        data = te.compute(
            (m, whole), lambda i, j: te.if_then_else(j < given, rows[i, j], nothing), name=f"{node.stage}_filled"
        )
    return topi.matmul_nbits(data, packed, node.stage)


def _in_floats(node: Node, rows: Tensor, weights: _Weights) -> Tensor:
    k = shape_of(rows)[1]
    numbers = node.weights.tensor(np.ascontiguousarray(weights.numbers[:, :k].T))
    data = rows
    if rows.dtype != "float32":
        data = te.compute(rows.shape, lambda i, j: cast(rows[i, j], "float32"), name=f"{node.stage}_wide")
    return topi.matmul(data, numbers, name=node.stage)


def _weights_of(node: Node) -> tuple[_Weights, int]:
    """The weights of a node, and how many of each row count."""
    n, k, bits, block = (
        int(node.attrs.get(name, usual)) for name, usual in (("N", 0), ("K", 0), ("bits", 4), ("block_size", 0))
    )
    if n < 1 or k < 1 or bits not in _BITS or block < _LEAST_BLOCK or block & (block - 1):
        raise Unsupported(f"{node.op} of {n} by {k} weights of {bits} bits in blocks of {block}")
    blocks, packed = -(-k // block), node.known(1, "weights")
    scales = node.known(2, "scales")
    if packed.dtype != np.uint8 or packed.size != n * blocks * block * bits // 8 or scales.size != n * blocks:
        raise Unsupported(f"{node.op} with weights {packed.dtype}{packed.shape} and scales {scales.shape}")
    if scales.dtype.name not in ("float32", "float16", "bfloat16"):
        raise Unsupported(f"{node.op} with scales of {scales.dtype}")
    zeros = _zeros_of(node, n, blocks, bits) if node.has(3) else None
    codes = _unpacked(packed.reshape(n, -1), bits)
    return _Weights(codes, scales.reshape(n, blocks), zeros, bits, block), k


def _zeros_of(node: Node, n: int, blocks: int, bits: int) -> Array:
    """Zero points [n, blocks]: packed as the weights are, each row in whole bytes, or floats."""
    zeros = node.known(3, "zero points")
    if zeros.dtype != np.uint8:
        if zeros.size != n * blocks or zeros.dtype.name not in ("float32", "float16", "bfloat16"):
            raise Unsupported(f"{node.op} with zero points {zeros.dtype}{zeros.shape}")
        return zeros.reshape(n, blocks)
    if zeros.size != n * -(-blocks * bits // 8):
        raise Unsupported(f"{node.op} with zero points {zeros.dtype}{zeros.shape}")
    return _unpacked(zeros.reshape(n, -1), bits)[:, :blocks]


def _unpacked(packed: Array, bits: int) -> Array:
    """Numbers of a few bits, the lowest of each byte first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return (packed[..., None] >> shifts & np.uint8((1 << bits) - 1)).reshape(len(packed), -1)


RULES: dict[str, Rule] = {"MatMulNBits": _matmul_nbits}
