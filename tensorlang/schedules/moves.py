"""Stages that move data, read off their accesses: what is turned around, and what comes from one place or another."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import replace
from itertools import combinations

from tensorlang.ir.affine import add, affine
from tensorlang.ir.expr import Binary, Expr, Load, Select, Var, const, substitute, variables, walk
from tensorlang.ir.index import to_index
from tensorlang.ir.simplify import simplify
from tensorlang.schedules.recognise import Stage
from tensorlang.te.axis import Axis, extent_of
from tensorlang.te.operation import ComputeOp, loads

_MOST_CUTS = 64
"""Each is a loop of its own."""
_UNEVEN = ("floormod", "truncmod", "bitand", "bitor", "bitxor")


def near_axis(stage: Stage) -> str | None:
    """The axis along which a read lies in memory, or backwards, where that is not the last axis of the stage."""
    if stage.reduce:
        return None
    for read in stage.reads:
        rank = max((d for d, size in enumerate(read.shape, 1) if size != 1), default=0)
        access = replace(read, shape=read.shape[:rank], dims=read.dims[:rank])
        for axis in stage.spatial[:-1]:
            if access.stride(axis) in (1, -1) and stage.spatial[-1] in access.axes and stage.extents[axis] > 1:
                return axis
    return None


def chooses(op: ComputeOp) -> bool:
    """Whether elements come from one place or another."""
    return any(isinstance(node, Select) for value in op.body for node in walk(value))


def joins(op: ComputeOp) -> bool:
    """Whether the place of an element says which of several arrays it comes from, or where an array begins in a row."""
    if op.reduce_axes or not op.axes:
        return False
    both = (all(map(_reads, (choice.then, choice.orelse))) for choice in _choices(op))
    last, conditions = op.axes[-1].name, (c for c in _conditions(op) if isinstance(c, Binary))
    after = (c.op in ("ge", "gt") and isinstance(c.a, Var) and c.a.name == last for c in conditions)
    return any(both) or any(after)


def cuts_of(op: ComputeOp, along: int = -1) -> list[Expr]:
    """Where along its last axis, or another, a stage begins to take its elements from elsewhere; rising, if known."""
    if not op.axes or op.reduce_axes:
        return []
    own, last = {axis.name for axis in op.axes}, op.axes[along]
    found: dict[str, Expr] = {}
    for condition in _conditions(op):
        match condition:
            case Binary(op="lt" | "ge" | "le" | "gt") if (bound := _bound_of(condition, last, own)) is not None:
                found.setdefault(str(bound), bound)
            case Binary(op="lt" | "ge" | "le" | "gt") if turn := _turn_of(condition, last):
                found.setdefault(str(turn), const(turn))
    if len(found) > _MOST_CUTS:
        return []
    (sizes, end), places = _place(last.extent), sorted((_place(bound), text) for text, bound in found.items())
    inside = ((n, text) for (behind, n), text in places if (behind or n > 0) and not (behind == sizes and n >= end))
    return [found[text] for _, text in inside]


def _place(bound: Expr) -> tuple[str, int]:
    """A place as what is behind sizes, by their text, and a number."""
    form = affine(bound)
    if form is None:
        return str(bound), 0
    return " + ".join(f"{factor} {name}" for name, factor in sorted(form.items()) if name), form.get("", 0)


def _bound_of(condition: Binary, axis: Axis, own: Set[str]) -> Expr | None:
    """The place along an axis where it is compared with a sum of sizes; None where the condition is no such one."""
    left, right = affine(condition.a), affine(condition.b)
    if left is None or right is None:
        return None
    apart = add(left, right, -1)
    factor = apart.get(axis.name, 0)
    if abs(factor) != 1 or (apart.keys() & own) != {axis.name}:
        return None
    rest = condition.a - condition.b if factor < 0 else condition.b - condition.a
    begins_later = condition.op in (("le", "gt") if factor > 0 else ("lt", "ge"))
    return simplify(to_index(rest + axis.var + int(begins_later)))


def _turn_of(condition: Expr, axis: Axis) -> int:
    """The first place along an axis where a comparison with nothing else is what it is at the end; 0 where none is.

    It changes once: quotients rise with the axis, remainders do not.
    """
    low, high = 0, (extent_of(axis.extent) or 1) - 1
    if variables(condition) != {axis.name} or any(isinstance(n, Binary) and n.op in _UNEVEN for n in walk(condition)):
        return 0

    def at(place: int) -> str:
        return str(simplify(substitute(condition, {axis.name: const(place, axis.var.dtype)})))

    first, last = at(low), at(high)
    while first != last and high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if at(middle) == last else (middle, high)
    return high if first != last else 0


def _limited(index: Expr) -> list[Expr]:
    """A place and its limits, or itself."""
    match index:
        case Binary(op="min" | "max", a=a, b=b):
            return [*_limited(a), *_limited(b)]
    return [index]


def _reads(value: Expr) -> bool:
    return any(isinstance(node, Load) for node in walk(value))


def _choices(op: ComputeOp) -> Iterator[Select]:
    """The choices by places of elements, not by values."""
    own = {axis.name for axis in op.axes}
    for choice in (node for value in op.body for node in walk(value) if isinstance(node, Select)):
        if not _reads(choice.cond) and variables(choice.cond) & own:
            yield choice


def _conditions(op: ComputeOp) -> Iterator[Expr]:
    """What a stage asks of the place of an element, one condition after the other; so are limits of what it reads."""
    own = {axis.name for axis in op.axes}
    for index in (index for load in loads(op) for index in load.index if not _reads(index)):
        for node in walk(index):
            for a, b in combinations(_limited(node), 2):
                if variables(a) & own or variables(b) & own:
                    yield Binary("lt", a, b, "bool")
    for choice in _choices(op):
        waiting = [choice.cond]
        while waiting:
            match waiting.pop():
                case Binary(op="and", a=a, b=b):
                    waiting += [b, a]
                case condition:
                    yield condition
