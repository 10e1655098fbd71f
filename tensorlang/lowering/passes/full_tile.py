"""Full and partial tiles of one loop: where its bounds show a constant extent that other bounds may cut."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Binary, Const, Expr, binary
from tensorlang.ir.loops import constant_difference, constant_extent
from tensorlang.ir.stmt import INDEX, For, If, Stmt


@dataclass(frozen=True, slots=True)
class Tile:
    """A full tile: where it starts, how long it is, and the tests that it is full (none: it always is)."""

    lower: Expr
    extent: int
    tests: tuple[Expr, ...]


def full_tile(loop: For, extents: Mapping[str, int]) -> Tile | None:
    """The full tile of a loop, from bounds such as `range(32*jo, min(32*jo + 32, n))`, or from its axis."""
    extent = constant_extent(loop)
    if extent is not None:
        return Tile(loop.lower, extent, ())
    lowers, uppers = list(operands("max", loop.lower)), list(operands("min", loop.upper))
    spans = [(constant_difference(upper, lower), lower, upper) for lower in lowers for upper in uppers]
    known = [(span, lower, upper) for span, lower, upper in spans if span is not None]
    if known:
        span, lower, upper = min(known, key=lambda item: item[0])
        tests = [binary("le", other, lower) for other in lowers if other is not lower]
        tests += [binary("ge", other, upper) for other in uppers if other is not upper]
        return Tile(lower, span, tuple(tests))
    if loop.axis in extents:
        wanted = Const(extents[loop.axis], INDEX)
        test = binary("eq", binary("sub", loop.upper, loop.lower), wanted)
        return Tile(loop.lower, extents[loop.axis], (test,))
    return None


def versioned(tests: tuple[Expr, ...], fast: Stmt, slow: Stmt) -> Stmt:
    """`fast` where all tests hold, else `slow`."""
    return If(conjunction(tests), fast, slow) if tests else fast


def conjunction(conditions: tuple[Expr, ...]) -> Expr:
    """All of the conditions, at least one."""
    return reduce(lambda a, b: binary("and", a, b), conditions)


def operands(op: str, expr: Expr) -> Iterator[Expr]:
    """The operands of nested minima or maxima."""
    if isinstance(expr, Binary) and expr.op == op:
        yield from operands(op, expr.a)
        yield from operands(op, expr.b)
    else:
        yield expr
