"""Operators that read and write at indices of several dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tensorlang import te
from tensorlang.ir.expr import Expr, binary, cast
from tensorlang.networks.network import Value
from tensorlang.networks.node import Node, Rule, axis_of, shape_of
from tensorlang.networks.places import within
from tensorlang.networks.refusal import Unsupported
from tensorlang.te.operation import Tensor

_MOST = 1 << 31
"""Comparisons of elements with updates that a scatter may take."""
_COMBINED: Mapping[str, tuple[Callable[..., Any], Callable[[Expr, Expr], Expr]]] = {
    "add": (te.sum, lambda a, b: a + b),
    "mul": (te.prod, lambda a, b: a * b),
    "max": (te.max, te.maximum),
    "min": (te.min, te.minimum),
}
"""What becomes of several updates, and of these with the element before, by the attribute `reduction`."""


def _gather_nd(node: Node) -> Value:
    shape, (*outer, depth) = node.shape(0), node.shape(1)
    first = int(node.attrs.get("batch_dims", 0))
    data, at = node.tensor(0), node.tensor(1)
    if first + depth > len(shape) or outer[:first] != [*shape[:first]]:
        raise Unsupported(f"{node.op} of {shape} at indices of the shape {node.shape(1)}")

    def element(*i: Expr) -> Expr:
        places = [within(at(*i[: len(outer)], k), shape[first + k]) for k in range(depth)]
        return data(*i[:first], *places, *i[len(outer) :])

    return node.compute((*outer, *shape[first + depth :]), element)


def _scatter_elements(node: Node) -> Value:
    shape, given = node.shape(0), node.shape(1)
    axis = axis_of(node.attrs.get("axis", 0), len(shape), node.op)
    at, updates = node.tensor(1), node.tensor(2)
    fits = len(given) == len(shape) and all(
        n <= m for d, (n, m) in enumerate(zip(given, shape, strict=True)) if d != axis
    )
    if not fits or node.shape(2) != given:
        raise Unsupported(f"{node.op} of updates {node.shape(2)} to {shape} at indices of the shape {given}")
    k = te.reduce_axis((0, given[axis]), "k")

    def held(i: Sequence[Expr]) -> list[Expr]:
        """Indices of updates, of which there may be fewer than elements."""
        return [v if n == m else te.minimum(v, n - 1) for v, n, m in zip(i, given, shape, strict=True)]

    def hit(i: Sequence[Expr]) -> Expr:
        here = [binary("lt", v, n) for d, (v, n) in enumerate(zip(i, given, strict=True)) if d != axis and n < shape[d]]
        own = held(i)
        number = within(at(*own[:axis], k, *own[axis + 1 :]), shape[axis])
        return te.all(*here, binary("eq", number, cast(i[axis], number.dtype)))

    def update(i: Sequence[Expr], number: Expr) -> Expr:
        own = held(i)
        return updates(*own[:axis], number, *own[axis + 1 :])

    return _updated(node, [k], hit, update)


def _scatter_nd(node: Node) -> Value:
    shape, (*outer, depth) = node.shape(0), node.shape(1)
    at, updates = node.tensor(1), node.tensor(2)
    if depth > len(shape) or node.shape(2) != (*outer, *shape[depth:]):
        raise Unsupported(f"{node.op} of updates {node.shape(2)} to {shape} at indices of the shape {node.shape(1)}")
    axes = [te.reduce_axis((0, n), f"k{d}") for d, n in enumerate(outer)]

    def hit(i: Sequence[Expr]) -> Expr:
        found = []
        for d in range(depth):
            number = within(at(*axes, d), shape[d])
            found.append(binary("eq", number, cast(i[d], number.dtype)))
        return te.all(*found)

    def update(i: Sequence[Expr], number: Expr) -> Expr:
        places, rest = list[Expr](), number
        for n in reversed(outer):
            places.insert(0, binary("floormod", rest, n))
            rest = binary("floordiv", rest, n)
        return updates(*places, *i[depth:])

    return _updated(node, axes, hit, update)


def _updated(
    node: Node,
    axes: Sequence[Any],
    hit: Callable[[Sequence[Expr]], Expr],
    update: Callable[[Sequence[Expr], Expr], Expr],
) -> Tensor:
    """Data with updates, each of which is compared with each element: the last one counts, or all are combined.

    `axes` go through the updates, `hit` tells whether that one is for an element, `update` reads it by its number.
    """
    data, shape, how = node.tensor(0), node.shape(0), node.attrs.get("reduction", "none")
    extents = [int(a.extent) if isinstance(a.extent, int) else a.extent.value for a in axes]
    if math.prod(shape) * math.prod(extents) > _MOST:
        raise Unsupported(
            f"{node.op} of {math.prod(extents)} updates to {math.prod(shape)} elements; these are too many"
        )
    number: Expr = te.const(0, "int32")
    for axis, n in zip(axes, extents, strict=True):
        number = number * n + cast(axis.var, "int32")
    if how not in ("none", *_COMBINED):
        raise Unsupported(f"{node.op} with the reduction {how}")
    if how != "none":
        combine, both = _COMBINED[how]
        total: Tensor = te.compute(
            shape, lambda *i: combine(update(i, number), axis=list(axes), where=hit(i)), name=f"{node.stage}_updates"
        )
        return node.compute(shape, lambda *i: both(data(*i), total(*i)))
    none = te.const(-1, "int32")
    last: Tensor = te.compute(
        shape, lambda *i: te.max(number, axis=list(axes), where=hit(i), init=none), name=f"{node.stage}_last"
    )

    def element(*i: Expr) -> Expr:
        found = last(*i)
        written = update(
            i, te.maximum(te.minimum(found, te.const(math.prod(extents) - 1, "int32")), te.const(0, "int32"))
        )
        return te.select(binary("ge", found, te.const(0, "int32")), written, data(*i))

    return node.compute(shape_of(data), element)


RULES: dict[str, Rule] = {
    "GatherND": _gather_nd,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
}
