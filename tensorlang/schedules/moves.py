"""Stages that move data, read off their accesses: what is turned around, and what comes from one place or another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tensorlang.ir.expr import Binary, Expr, Load, Select, Var, const, substitute, variables, walk
from tensorlang.ir.simplify import simplify
from tensorlang.schedules.recognise import Stage
from tensorlang.te.axis import Axis, extent_of
from tensorlang.te.operation import ComputeOp

_MOST_CUTS = 64
"""Each is a loop of its own."""
_UNEVEN = ("floormod", "truncmod", "bitand", "bitor", "bitxor")


def near_axis(stage: Stage) -> str | None:
    """The axis along which a read lies in memory, where that is not the last axis of the stage."""
    if stage.reduce:
        return None
    for read in stage.reads:
        rank = max((d for d, size in enumerate(read.shape, 1) if size != 1), default=0)
        access = replace(read, shape=read.shape[:rank], dims=read.dims[:rank])
        for axis in stage.spatial[:-1]:
            if access.stride_one(axis) and stage.spatial[-1] in access.axes and stage.extents[axis] > 1:
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
            case Binary(op="lt" | "ge", a=Var(name=last.name), b=bound) if not variables(bound) & own:
                found.setdefault(str(bound), bound)
            case Binary(op="le" | "gt", a=Var(name=last.name), b=bound) if not variables(bound) & own:
                above = simplify(bound + 1)
                found.setdefault(str(above), above)
            case Binary(op="lt" | "ge" | "le" | "gt") if turn := _turn_of(condition, last):
                found.setdefault(str(turn), const(turn))
    if len(found) > _MOST_CUTS:
        return []
    known = {text: extent_of(bound) for text, bound in found.items()}
    most = extent_of(last.extent)
    inside = [t for t, n in known.items() if n is None or (n > 0 and (most is None or n < most))]
    return [found[t] for t in (inside if None in known.values() else sorted(inside, key=lambda t: known[t] or 0))]


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


def _reads(value: Expr) -> bool:
    return any(isinstance(node, Load) for node in walk(value))


def _choices(op: ComputeOp) -> Iterator[Select]:
    """The choices by places of elements, not by values."""
    own = {axis.name for axis in op.axes}
    for choice in (node for value in op.body for node in walk(value) if isinstance(node, Select)):
        if not _reads(choice.cond) and variables(choice.cond) & own:
            yield choice


def _conditions(op: ComputeOp) -> Iterator[Expr]:
    """What a stage asks of the place of an element, one condition after the other."""
    for choice in _choices(op):
        waiting = [choice.cond]
        while waiting:
            match waiting.pop():
                case Binary(op="and", a=a, b=b):
                    waiting += [b, a]
                case condition:
                    yield condition
