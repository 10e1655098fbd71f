"""Images of blocks: columns that are added where the blocks lie that they are."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tensorlang import te
from tensorlang.ir.expr import Expr, as_expr, binary
from tensorlang.networks.elements import number
from tensorlang.networks.network import Value
from tensorlang.networks.node import Node, Rule
from tensorlang.networks.places import within
from tensorlang.networks.refusal import Unsupported


def _images_of_blocks(node: Node) -> Value:
    """Each pixel is the sum of what the blocks have for it that it lies in."""
    image, block = ([int(n) for n in node.known(k, what).ravel()] for k, what in ((1, "the image"), (2, "the block")))
    steps, gaps = (node.attrs.get(name, [1] * len(image)) for name in ("strides", "dilations"))
    pads = node.attrs.get("pads", [0] * 2 * len(image))
    counts = [
        (n + front + behind - gap * (k - 1) - 1) // step + 1
        for n, k, step, gap, front, behind in zip(
            image, block, steps, gaps, pads[: len(image)], pads[len(image) :], strict=True
        )
    ]
    batch, columns, blocks = node.shape(0)
    if columns % prod(block) or blocks != prod(counts) or min(counts) < 1:
        raise Unsupported(f"{node.op} of {node.shape(0)} to images of {image} in blocks of {block}")
    data = node.tensor(0)
    taps = [te.reduce_axis((0, k), f"tap{d}") for d, k in enumerate(block)]

    def element(n: Expr, c: Expr, *pixel: Expr) -> Any:
        inside, where = [], []
        for d, at in enumerate(pixel):
            moved = at + pads[d] - taps[d].var * gaps[d]
            first = binary("floordiv", moved, steps[d])
            inside += [binary("eq", first * steps[d], moved), binary("ge", moved, 0), binary("lt", first, counts[d])]
            where.append(within(first, counts[d]))
        column = c * prod(block) + _flat([tap.var for tap in taps], block)
        value = data(n, column, within(_flat(where, counts), blocks))
        return te.sum(te.select(te.all(*inside), value, number(0, value)), axis=taps)

    return node.compute((batch, columns // prod(block), *image), element)


def _flat(index: Sequence[Expr], extents: Sequence[int]) -> Expr:
    """The place in the order of memory."""
    found: Expr = as_expr(0)
    for i, extent in zip(index, extents, strict=True):
        found = found * extent + i
    return found


RULES: dict[str, Rule] = {"Col2Im": _images_of_blocks}
