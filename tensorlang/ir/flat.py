"""Offsets of elements in memory, from the indices of several dimensions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import floordiv, mod

from tensorlang.ir.expr import Binary, Const, Expr, binary, cast, rewrite, walk
from tensorlang.ir.simplify import simplify
from tensorlang.ir.simplify.forms import Range
from tensorlang.ir.stmt import INDEX


def row_major(extents: Sequence[int]) -> list[int]:
    """The distance in elements between neighbours of each dimension."""
    strides = [1]
    for extent in reversed(extents[1:]):
        strides.insert(0, strides[0] * extent)
    return strides[len(strides) - len(extents) :]


def flat_offset(index: Sequence[Expr], strides: Sequence[int], ranges: Mapping[str, Range]) -> Expr:
    """The offset of an element, with as few divisions as can be.

    The indices of fused loops are quotients and remainders, which cancel here: element `[f // 48, f % 48]` of an
    array of 48 columns is at `f`.
    """
    total: Expr = Const(0, INDEX)
    for part, stride in zip(index, strides, strict=True):
        total = binary("add", total, binary("mul", cast(part, INDEX), stride))
    return simplify(rewrite(simplify(rewrite(total, _without_remainder), ranges), _proper), ranges)


def divides(index: Expr) -> bool:
    """Whether an index holds a quotient or a remainder."""
    return any(map(is_division, walk(index)))


def is_division(expr: Expr) -> bool:
    """Whether an expression is a quotient or a remainder."""
    return isinstance(expr, Binary) and expr.op in ("floordiv", "floormod")


def _proper(expr: Expr) -> Expr | None:
    """`(8 * o + i) // 3` as `2 * o + (2 * o + i) // 3`: the form that quotients of `a % 3` have."""
    if not (isinstance(expr, Binary) and expr.op == "floordiv" and isinstance(expr.b, Const) and expr.b.value > 0):
        return None
    divisor = int(expr.b.value)
    terms = list(_terms(expr.a, 1))
    whole, rest = (_sum([(part(c, divisor), term) for c, term in terms]) for part in (floordiv, mod))
    return binary("add", whole, binary("floordiv", rest, divisor))


def _terms(expr: Expr, factor: int) -> Iterator[tuple[int, Expr]]:
    """The summands of `factor` times an expression: numbers, and what they are multiplied with."""
    match expr:
        case Const():
            yield factor * int(expr.value), Const(1, INDEX)
        case Binary(op="add" | "sub"):
            yield from _terms(expr.a, factor)
            yield from _terms(expr.b, factor if expr.op == "add" else -factor)
        case Binary(op="mul", a=Const() as number, b=other) | Binary(op="mul", a=other, b=Const() as number):
            yield from _terms(other, factor * int(number.value))
        case _:
            yield factor, expr


def _sum(terms: Sequence[tuple[int, Expr]]) -> Expr:
    total: Expr = Const(0, INDEX)
    for number, term in terms:
        total = binary("add", total, binary("mul", term, number))
    return total


def _without_remainder(expr: Expr) -> Expr | None:
    """`a % n` by quotients, which cancel those of other dimensions."""
    if isinstance(expr, Binary) and expr.op == "floormod" and isinstance(expr.b, Const):
        return expr.a - expr.b * binary("floordiv", expr.a, expr.b)
    return None
