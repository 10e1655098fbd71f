"""Loops on threads: their bounds tell which thread runs an iteration, so isl's tighter ones become tests inside.

A thread has the number of its iteration, counted from 0, or from the first one where a loop does not lie in a block
(`first_thread`). Where loops are cut in pieces, all pieces must agree on that; so do the regions of a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tensorlang.ir.expr import Binary, Const, Expr, binary, same
from tensorlang.ir.stmt import INDEX, For, If
from tensorlang.ir.thread_tags import is_thread
from tensorlang.polyhedral.nest import Loop

MOST_THREADS = 1024
"""Threads of a block along an axis, at most, on any device."""


def is_numbered(loop: Loop) -> bool:
    """Whether a loop runs on threads whose numbers are known: its bounds are constants, or it begins at 0."""
    return is_thread(loop.thread) and first_thread(loop) is not None


def first_thread(loop: Loop) -> int | None:
    """The iteration that the first thread of a loop runs; None where that is not known before the loops are made."""
    match loop.lower, loop.upper:
        case Const(first), Const(end):
            return 0 if first >= 0 and end <= MOST_THREADS else int(first)
        case Const(0), _:
            return 0
    return None


def numbered(loop: Loop, made: For, step: int = 1) -> For:
    """A loop that isl made of one on threads, or of a part of it, with the bounds of the whole."""
    if not is_numbered(loop):
        return made
    lower = loop.lower
    tests = [binary("ge", made.var, low) for low in _parts("max", made.lower) if not same(low, lower)]
    if step != 1:
        distance = binary("floormod", binary("sub", made.var, made.lower), step)
        tests.append(binary("eq", distance, Const(0, INDEX)))
    upper = loop.upper if isinstance(loop.upper, Const) else made.upper
    tests += [binary("lt", made.var, high) for high in _parts("min", made.upper) if not same(high, upper)]
    body = made.body
    for test in reversed(tests):
        body = If(test, body)
    return replace(made, lower=lower, upper=upper, body=body)


def _parts(op: str, expr: Expr) -> Iterator[Expr]:
    """The operands of nested minima or maxima."""
    if isinstance(expr, Binary) and expr.op == op:
        yield from _parts(op, expr.a)
        yield from _parts(op, expr.b)
    else:
        yield expr
