"""Operators that go along a dimension in order: running sums and products, and the largest elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tensorlang import te
from tensorlang.ir.expr import Expr, binary, cast
from tensorlang.networks.network import Value
from tensorlang.networks.node import Node, Rule, axis_of, element_of
from tensorlang.networks.places import within
from tensorlang.networks.refusal import Unsupported
from tensorlang.te.operation import Tensor

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
    """The first elements in order, and where they were: an element's place is the number of those before it."""
    shape, data = node.shape(0), node.tensor(0)
    axis = axis_of(int(node.attrs.get("axis", -1)), len(shape), node.op)
    count = int(node.attrs["k"]) if "k" in node.attrs else int(node.known(1, "the number").item())
    if not 0 <= count <= shape[axis]:
        raise Unsupported(f"{node.op} of {count} among {shape[axis]} elements")
    _refuse_long(node, shape[axis])
    before = "gt" if node.attrs.get("largest", 1) else "lt"
    k, m = te.reduce_axis((0, shape[axis]), "k"), te.reduce_axis((0, shape[axis]), "m")
    one = te.const(1, "int32")

    def along(i: Sequence[Any], place: Any) -> list[Any]:
        return [*i[:axis], place, *i[axis + 1 :]]

    def rank(*i: Expr) -> Any:
        other, own = data(*along(i, k)), data(*i)
        earlier = te.all(binary("eq", other, own), binary("lt", k.var, i[axis]))
        return te.sum(one, axis=k, where=te.any(binary(before, other, own), earlier))

    ranks: Tensor = te.compute(shape, rank, name=f"{node.stage}_ranks")
    kept = along(shape, count)

    def place(*i: Expr) -> Any:
        found = binary("eq", ranks(*along(i, m)), cast(i[axis], "int32"))
        return te.sum(cast(m.var, "int32"), axis=m, where=found)

    places: Tensor = te.compute(tuple(kept), place, name=f"{node.stage}_places")
    values = node.compute(kept, lambda *i: data(*along(i, within(places(*i), shape[axis]))))
    numbers: Tensor = te.compute(tuple(kept), lambda *i: cast(places(*i), "int64"), name=f"{node.stage}_long")
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
