"""Where elements of an array are: in another shape, and at indices that are computed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensorlang import te
from tensorlang.ir.expr import Expr, as_expr, binary
from tensorlang.ir.simplify import simplify
from tensorlang.networks.node import shape_of
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import within as within


def reshaped(tensor: Tensor, shape: Sequence[int], name: str) -> Tensor:
    """The elements of a tensor, in the order of memory, in another shape.

    Dimensions that are kept, split or joined are so one by one: an index of a split one is a sum of two.
    """
    old = shape_of(tensor)
    if old == tuple(shape):
        return tensor
    parts = _parts(old, tuple(shape))

    def element(*index: Expr) -> Expr:
        place: list[Expr] = []
        for dims, news in parts:
            counted = [d for d in news if shape[d] != 1] or news  # the index of one element is 0
            rest = [numbered([index[d] for d in counted], [shape[d] for d in counted])]
            for d in reversed(dims[1:]):
                rest[:1] = [binary("floordiv", rest[0], old[d]), binary("floormod", rest[0], old[d])]
            place += rest if dims else []
        ranges = {i.name: (0, n - 1) for i, n in zip(index, shape, strict=True)}  # type: ignore[attr-defined]
        return tensor(*(simplify(p, ranges) for p in place))

    made: Tensor = te.compute(tuple(shape), element, name=name)
    return made


def _parts(old: tuple[int, ...], new: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """Runs of dimensions, old and new, that hold as many elements each."""
    found: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        olds, news = ([i], [] if j == len(new) else [j]) if i < len(old) else ([], [j])
        i, j = i + len(olds), j + len(news)
        a, b = (math.prod(shape[d] for d in dims) for shape, dims in ((old, olds), (new, news)))
        while a != b and (i < len(old) or j < len(new)):
            if (a < b and i < len(old)) or j == len(new):
                a, olds, i = a * old[i], [*olds, i], i + 1
            else:
                b, news, j = b * new[j], [*news, j], j + 1
        if olds or not found:
            found.append((olds, news))
        else:
            found[-1][1].extend(news)
    return found


def numbered(index: Sequence[Expr], shape: Sequence[int]) -> Expr:
    """The number of an element among those of a shape."""
    found = as_expr(0)
    for i, extent in zip(index, shape, strict=True):
        found = found * extent + i
    return found
