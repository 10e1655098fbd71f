"""Operators that go along a dimension in order: running sums and products, and the largest elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorlang import dtypes, te
from tensorlang.ir.expr import Expr, binary, cast
from tensorlang.networks.network import Value
from tensorlang.networks.node import Node, Rule, axis_of, element_of
from tensorlang.networks.places import numbered, within
from tensorlang.networks.refusal import Unsupported
from tensorlang.te.operation import Tensor
from tensorlang.topi.ordering import places_in_order

_LONGEST = 4096
"""Elements that are compared with, or added to, each other along a dimension."""


def _running(function: Callable[..., Any]) -> Rule:
    """Sums or products up to each element, made anew for each one."""

    def rule(node: Node) -> Value:
        shape, data = node.shape(0), node.tensor(0)
        axis = axis_of(int(node.known(1, "the axis").item()), len(shape), node.op)
        _refuse_long(node, shape[axis])
        back, without = bool(node.attrs.get("reverse")), bool(node.attrs.get("exclusive"))
        op = ("gt" if without else "ge") if back else ("lt" if without else "le")
        k = te.reduce_axis((0, shape[axis]), "k")

        def element(*i: Expr) -> Any:
            return function(data(*i[:axis], k, *i[axis + 1 :]), axis=k, where=binary(op, k.var, i[axis]))

        return node.compute(shape, element)

    return rule


def _refuse_long(node: Node, extent: int) -> None:
    if extent > _LONGEST:
        raise Unsupported(f"{node.op} along {extent} elements; up to {_LONGEST} are taken")


def _top(node: Node) -> tuple[Value, ...]:
    """The first elements in order, and where they were."""
    shape, data = node.shape(0), node.tensor(0)
    axis = axis_of(int(node.attrs.get("axis", -1)), len(shape), node.op)
    count = int(node.attrs["k"]) if "k" in node.attrs else int(node.known(1, "the number").item())
    if not 0 <= count <= shape[axis]:
        raise Unsupported(f"{node.op} of {count} among {shape[axis]} elements")
    kept = [*shape[:axis], count, *shape[axis + 1 :]]
    if not math.prod(kept):
        return np.zeros(kept, dtypes.info(data.dtype).numpy), np.zeros(kept, np.int64)
    order = places_in_order(data, axis, bool(node.attrs.get("largest", 1)), count, node.stage)

    def place(i: Sequence[Expr]) -> Expr:
        return order(numbered(i[:axis], shape[:axis]), numbered(i[axis + 1 :], shape[axis + 1 :]), i[axis])

    values = node.compute(kept, lambda *i: data(*i[:axis], within(place(i), shape[axis]), *i[axis + 1 :]))
    numbers: Tensor = te.compute(tuple(kept), lambda *i: cast(place(i), "int64"), name=f"{node.stage}_long")
    return values, numbers


def _reversed(node: Node) -> Value:
    """Rows whose first elements, as many as an input says, are in the other order."""
    shape, data, lengths = node.shape(0), node.tensor(0), node.value(1)
    time, batch = int(node.attrs.get("time_axis", 0)), int(node.attrs.get("batch_axis", 1))

    def element(*i: Expr) -> Expr:
        length = element_of(lengths, lambda: node.tensor(1), [i[batch]])
        t = cast(i[time], length.dtype)
        turned = te.select(binary("lt", t, length), length - te.const(1, length.dtype) - t, t)
        return data(*i[:time], within(turned, shape[time]), *i[time + 1 :])

    return node.compute(shape, element)


RULES: dict[str, Rule] = {
    "CumProd": _running(te.prod),
    "CumSum": _running(te.sum),
    "ReverseSequence": _reversed,
    "TopK": _top,
}
