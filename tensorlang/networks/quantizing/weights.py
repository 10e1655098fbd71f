"""Networks whose weights alone are 8-bit integers: a quarter of the bytes, for what waits for memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from tensorlang.errors import ArgumentError, DefinitionError
from tensorlang.ir.expr import Buffer, Expr, Load, as_expr, cast, rewrite
from tensorlang.networks.network import Array, Network
from tensorlang.networks.quantizing.integers import integers_of
from tensorlang.networks.quantizing.probing import kept_nodes, opened
from tensorlang.networks.quantizing.products import Product, product_of
from tensorlang.te.operation import ComputeOp, Operation, PlaceholderOp
from tensorlang.te.program import read_buffers, unique

_FEW = 256
"""Rows of which a product takes as long as one of floats on a CPU, and from which on it takes longer."""


def quantize_weights(network: Network, keep: Sequence[str] = (), most_uses: int | None = _FEW) -> Network:
    """Return the network with products whose weights are 8-bit integers, and all else in floats.

    Weights are symmetric int8 with a scale for each column; they become floats in registers, where they are multiplied,
    and sums are scaled: no samples are needed, weights take a quarter of the memory, and products of few rows, which
    wait for their weights, a fraction of the time. `most_uses`: weights that a call uses more often than that, as
    those of convolutions over large images, are bound by arithmetic, and stay; None: all become integers. `keep`: nodes
    that stay as they are, by name or pattern. Raises ArgumentError for names that no node has and other numbers of
    uses, DefinitionError where no weights are taken.
    """
    if most_uses is not None and most_uses < 1:
        raise ArgumentError(f"most_uses is a number of rows, 1 at least, or None; got {most_uses}")
    found = opened(network)
    kept = kept_nodes(network, keep)
    arrays, ops, taken = dict(found.weights), list[Operation](), {op.name for op in found.program.ops}
    given: list[Operation] = []
    for op in found.program.ops:
        product = product_of(op, found.weights) if network.origin(op.name).node not in kept else None
        if product is None or not product.is_matrix or product.uses > (most_uses or math.inf):
            ops.append(op)
            continue
        made = _of_integers(product, arrays, taken)
        given += made[:2]
        ops += made[2:]
    if not given:
        how = "" if most_uses is None else f" that are used {most_uses} times at most"
        raise DefinitionError(f"{network.name} has no weights of products{how}")
    read = {name for op in ops for name in read_buffers(op)}
    gone = {name for name in found.weights if name not in read}
    program = replace(found.program, ops=(*given, *(op for op in ops if op.name not in gone)))
    return found.closed(program, {name: array for name, array in arrays.items() if name not in gone})


def _of_integers(product: Product, arrays: dict[str, Array], taken: set[str]) -> list[Operation]:
    """Placeholders of integers and of scales, sums over them, and the sums scaled, under the name of the product."""
    op, weight = product.op, product.weight
    integers, scale = integers_of(arrays[weight.buffer.name], product.columns)
    given: list[PlaceholderOp] = []
    for word, array in (("weight", integers), ("scale", scale)):
        name = unique(f"{op.name}_{word}", taken)
        taken.add(name)
        arrays[name] = array
        given.append(PlaceholderOp(name, tuple(as_expr(n) for n in array.shape), str(array.dtype)))
    held, scales = (Buffer(p.name, p.shape, p.dtype) for p in given)

    def rule(node: Expr) -> Expr | None:
        if isinstance(node, Load) and node.buffer.name == weight.buffer.name:
            return cast(Load(held, node.index), "float32")
        return None

    sums = unique(f"{op.name}_unscaled", taken)
    taken.add(sums)
    made = replace(op, name=sums, body=tuple(rewrite(b, rule) for b in op.body))
    column = tuple(weight.index[d] for d in product.columns)
    total = Load(Buffer(sums, op.shape, "float32"), tuple(a.var for a in op.axes))
    return [*given, made, ComputeOp(op.name, op.axes, (), (total * Load(scales, column),))]
