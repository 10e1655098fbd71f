"""Places in an array whose indices are digits of one number: loops that were fused, and cut again for threads.

isl takes long to see that two such places are one only if the numbers are equal; the simplifier puts digits together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations

from tensorlang.ir.expr import Binary, Const, Expr, Var, binary, variables, walk
from tensorlang.ir.extremes import extreme
from tensorlang.ir.simplify import simplify
from tensorlang.ir.stmt import INDEX
from tensorlang.polyhedral.statement import Statement

_MOST = 4
"""Digits whose orders are all tried."""

Ranges = Mapping[str, tuple[int, int]]


def loop_ranges(statement: Statement) -> dict[str, tuple[int, int]]:
    """The least and the greatest value of the loops of a statement that run from one number to another."""
    found: dict[str, tuple[int, int]] = {}
    for name, low, high in zip(statement.loops, statement.domain[::2], statement.domain[1::2], strict=False):
        ends = _end(low, name, "ge"), _end(high, name, "lt")
        if ends[0] is not None and ends[1] is not None:
            found[name] = (ends[0], ends[1] - 1)
    return found


def _end(test: Expr, name: str, op: str) -> int | None:
    """The number that a loop, or what differs from it by a constant, is compared with, for the loop itself."""
    if not isinstance(test, Binary) or test.op != op:
        return None
    end = simplify(binary("sub", binary("add", test.b, Var(name, INDEX)), test.a))
    return int(end.value) if isinstance(end, Const) else None


def joined(cell: Sequence[Expr | None], ranges: Ranges) -> list[Expr | None]:
    """Fewer indices that are equal where those of a place are, in which digits of one number are that number."""
    rest = [index for index in cell if index is None or not _divides(index)]
    digits = [index for index in cell if index is not None and _divides(index)]
    groups: list[list[Expr]] = []
    for index in digits:
        near = [any(_share(index, other) for other in group) for group in groups]
        together = [other for group, is_near in zip(groups, near, strict=True) if is_near for other in group]
        groups = [group for group, is_near in zip(groups, near, strict=True) if not is_near] + [[*together, index]]
    return [*rest, *(index for group in groups for index in _number(group, ranges))]


def _divides(index: Expr) -> bool:
    return any(isinstance(node, Binary) and node.op in ("floordiv", "floormod") for node in walk(index))


def _share(a: Expr, b: Expr) -> bool:
    return bool(set(variables(a)) & set(variables(b)))


def _number(digits: list[Expr], ranges: Ranges) -> list[Expr]:
    """The number that digits make in some order, without a quotient; the digits if there is none."""
    sizes = [_size(digit, ranges) for digit in digits]
    if not 1 < len(digits) <= _MOST or None in sizes:
        return digits
    for order in permutations(range(len(digits))):
        number: Expr = Const(0, INDEX)
        for k in order:
            number = binary("add", binary("mul", number, Const(sizes[k] or 1, INDEX)), digits[k])
        found = simplify(number, ranges)
        if not _divides(found):
            return [found]
    return digits


def _size(digit: Expr, ranges: Ranges) -> int | None:
    """How many values from zero a digit may have; None where it may be less than zero, or anything."""
    ends = {name: (Const(low, INDEX), Const(high, INDEX)) for name, (low, high) in ranges.items()}
    low, high = (extreme(digit, ends, greatest) for greatest in (False, True))
    known = isinstance(low, Const) and isinstance(high, Const) and low.value >= 0
    return int(high.value) + 1 if known and isinstance(high, Const) else None
