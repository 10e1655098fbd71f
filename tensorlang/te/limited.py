"""Reduce axes that end where data say so: long ones of which a condition leaves the beginning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Binary, Cast, Expr, Var, binary
from tensorlang.ir.traverse import distinct
from tensorlang.location import caller
from tensorlang.te.axis import Axis
from tensorlang.te.operation import Read


def limited(axes: Sequence[Axis], sources: Sequence[Expr]) -> tuple[tuple[Axis, ...], list[Expr]]:
    """The axes with extents that are known before a kernel runs, and what says where those of data end.

    An axis of data that is added to an index has at most one round more than the dimension that it indexes: the round
    behind the last reads outside, which a kernel tells. DefinitionError where it is added to none.
    """
    ends = {axis.name: axis.lower + axis.extent for axis in axes if _is_of_data(axis)}
    found = tuple(
        replace(axis, extent=_longest(axis, sources) + 1, declared=axis) if axis.name in ends else axis for axis in axes
    )
    return found, [binary("lt", axis.var, ends[axis.name]) for axis in found if axis.name in ends]


def _is_of_data(axis: Axis) -> bool:
    return any(isinstance(node, Read) for node in distinct(axis.extent))


def _longest(axis: Axis, sources: Sequence[Expr]) -> Expr:
    """The extent of a dimension that is indexed by the axis and what is added to it."""
    for source in sources:
        for node in distinct(source):
            if isinstance(node, Read):
                for place, extent in zip(node.index, node.tensor.shape, strict=True):
                    if _is_shifted(place, axis.var):
                        return extent
    raise DefinitionError(
        f"the upper bound of reduce axis {axis.name} must not read a tensor, got {axis.extent}, unless the axis is "
        f"added to an index, as in A[begin + {axis.name}]; sizes are known before a kernel runs",
        caller(),
    )


def _is_shifted(place: Expr, var: Var) -> bool:
    """Whether an index is a variable, and maybe something added to it."""
    match place:
        case Var():
            return place is var
        case Cast(value=value):
            return _is_shifted(value, var)
        case Binary(op="add", a=a, b=b):
            return _is_shifted(a, var) != _is_shifted(b, var) and not (_uses(a, var) and _uses(b, var))
        case Binary(op="sub", a=a, b=b):
            return _is_shifted(a, var) and not _uses(b, var)
    return False


def _uses(expr: Expr, var: Var) -> bool:
    return any(node is var for node in distinct(expr))
