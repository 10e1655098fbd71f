"""Reduce axes that end where data say so: long ones of which a condition leaves the beginning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Binary, Cast, Const, Expr, Select, Var, binary, cast, rewrite
from tensorlang.ir.simplify import simplify
from tensorlang.ir.traverse import distinct
from tensorlang.location import caller
from tensorlang.te.axis import Axis
from tensorlang.te.operation import Read


def limited(
    axes: Sequence[Axis], sources: Sequence[Expr], is_whole: bool = True
) -> tuple[tuple[Axis, ...], list[Expr], list[Expr]]:
    """The axes with extents that are known before a kernel runs, what says where those of data end, and what is wrong.

    An axis of data that is added to an index has at most one round more than the dimension that it indexes: the round
    behind the last reads outside, which a kernel tells. Only what every round reads tells so; where not all are made
    (not `is_whole`), nothing is taken from the axis, and the first round must not be below 0, nor the last behind the
    dimension, which is what is wrong: all rounds are to be made then, of which one reads outside. DefinitionError where
    an axis is added to no such index.
    """
    ends = {axis.name: axis.lower + _wide(axis.extent) for axis in axes if _is_of_data(axis)}
    places = {axis.name: _indexed(axis, sources, is_whole) for axis in axes if axis.name in ends}
    found = tuple(
        replace(axis, extent=places[axis.name][1] + 1, declared=axis) if axis.name in ends else axis for axis in axes
    )
    begins = {axis.name: _without(places[axis.name][0], axis.var) for axis in axes if axis.name in ends}
    wrong = [binary("lt", begin, Const(0, begin.dtype)) for begin in begins.values() if not isinstance(begin, Const)]
    wrong += [binary("gt", _wide(begin) + ends[name], _wide(places[name][1])) for name, begin in begins.items()]
    return found, [binary("lt", axis.var, ends[axis.name]) for axis in found if axis.name in ends], wrong


def _is_of_data(axis: Axis) -> bool:
    return any(isinstance(node, Read) for node in distinct(axis.extent))


def _wide(extent: Expr) -> Expr:
    """An extent in 64 bits: a difference of data that lie does not wrap to a small one."""
    match extent:
        case Binary(op="add" | "sub" | "mul" as op, a=a, b=b):
            return binary(op, _wide(a), _wide(b))
    return cast(extent, "int64")


def _without(place: Expr, var: Var) -> Expr:
    """The index of the first round."""
    return simplify(rewrite(place, lambda node: Const(0, var.dtype) if node is var else None))


def _indexed(axis: Axis, sources: Sequence[Expr], is_whole: bool) -> tuple[Expr, Expr]:
    """An index to which the axis is added in every round, and the extent of the dimension."""
    for source in sources:
        for node in _always(source):
            if isinstance(node, Read):
                for place, extent in zip(node.index, node.tensor.shape, strict=True):
                    if _is_shifted(place, axis.var, is_whole):
                        return place, extent
    raise DefinitionError(
        f"the upper bound of reduce axis {axis.name} must not read a tensor, got {axis.extent}, unless the axis is "
        f"added to an index of what every round reads, as in A[begin + {axis.name}]; sizes are known before a kernel "
        "runs",
        caller(),
    )


def _always(expr: Expr) -> Iterator[Expr]:
    """What an expression computes whatever data say: no branch, and nothing behind a condition."""
    waiting, seen = [expr], set[int]()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        match node:
            case Select(cond=first) | Binary(op="and" | "or", a=first):
                waiting.append(first)
            case _:
                waiting.extend(reversed(node.children()))


def _is_shifted(place: Expr, var: Var, is_whole: bool) -> bool:
    """Whether an index is a variable, and maybe something added to it; or taken from it, where it `is_whole`."""
    match place:
        case Var():
            return place is var
        case Cast(value=value, dtype="int32" | "int64"):
            return _is_shifted(value, var, is_whole)
        case Binary(op="add", a=a, b=b):
            more = b if _uses(a, var) else a
            one = _is_shifted(a, var, is_whole) != _is_shifted(b, var, is_whole) and not _uses(more, var)
            return one and (is_whole or not _is_less(more))
        case Binary(op="sub", a=a, b=b):
            return is_whole and _is_shifted(a, var, is_whole) and not _uses(b, var)
    return False


def _is_less(expr: Expr) -> bool:
    """Whether a number is written as a negative one, or a difference."""
    return any(
        (isinstance(node, Const) and node.value < 0) or (isinstance(node, Binary) and node.op == "sub")
        for node in _always(expr)
    )


def _uses(expr: Expr, var: Var) -> bool:
    return any(node is var for node in distinct(expr))
