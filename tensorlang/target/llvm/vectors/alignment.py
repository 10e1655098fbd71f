"""Where the rows that a long vector loop stores meet a cache line: an access across two lines costs twice."""

from __future__ import annotations

from collections.abc import Iterator

from tensorlang import dtypes
from tensorlang.ir.affine import affine
from tensorlang.ir.expr import Load, substitute
from tensorlang.ir.stmt import For, Store
from tensorlang.target.llvm.arithmetic import binary
from tensorlang.target.llvm.expressions import index, place
from tensorlang.target.llvm.scope import Lanes, Scope
from tensorlang.target.llvm.text import INDEX, Function, Value, literal
from tensorlang.target.llvm.vectors.body import Body

LINE = 64
"""Bytes of a cache line. Narrower registers cross lines less often than a piece more costs."""


def stores_of_lines(scope: Scope, loop: For, body: Body, lanes: int, anywhere: bool) -> Iterator[Store]:
    """Stores of the loop whose pieces are as wide as a line, if they are rows, at places known in front of the loop.

    Unless rows may begin `anywhere`, those to arrays of ours whose rows begin at lines.
    """
    if body.loops:
        return
    for written in body.stores:
        buffer = written.store.buffer
        wide = dtypes.info(buffer.dtype).bytes * lanes == LINE
        if written.reads or not wide or not (anywhere or in_lines(scope, buffer.name, lanes)):
            continue
        if all(name == loop.var.name or name in scope.values for name in written.names):
            yield written.store


def is_row(fn: Function, scope: Scope, loop: For, stored: Store, lanes: int) -> bool:
    """Whether the pieces of a store are rows."""
    inside = Scope(scope.values, scope.buffers, scope.varying, Lanes(loop.var.name, literal(0, INDEX), lanes))
    step = place(fn, inside, Load(stored.buffer, stored.index)).step
    return step is not None and step.integer == 1


def iterations_to_line(fn: Function, scope: Scope, loop: For, row: Store, lower: Value, lanes: int) -> Value:
    """How many iterations from `lower` on run before one that stores to the start of a line."""
    size = dtypes.info(row.buffer.dtype).bytes
    if in_lines(scope, row.buffer.name, lanes):
        form = affine(substitute(scope.expanded(row.index[-1]), {loop.var.name: loop.lower}))
        if form is not None and all(factor % lanes == 0 for name, factor in form.items() if name):
            return literal(-form.get("", 0) % lanes, INDEX)
        at = index(fn, scope.bind(loop.var.name, lower), row.index[-1])
    else:
        inside = Scope(scope.values, scope.buffers, scope.varying, Lanes(loop.var.name, lower, lanes))
        first = place(fn, inside, Load(row.buffer, row.index)).pointer
        at = binary(fn, "floordiv", fn.value(f"ptrtoint ptr {first} to i64", INDEX), literal(size, INDEX))
    return binary(fn, "floormod", binary(fn, "sub", literal(0, INDEX), at), literal(lanes, INDEX))


def in_lines(scope: Scope, name: str, lanes: int) -> bool:
    """Whether every row of an array begins at a line of our own memory, of which `lanes` elements fill one."""
    held = scope.buffers[name]
    outer = [stride.integer for stride in held.strides[:-1]]
    filled = dtypes.info(held.buffer.dtype).bytes * lanes == LINE
    dense = bool(held.strides) and held.strides[-1].integer == 1
    return held.aligned and filled and dense and all(s is not None and s % lanes == 0 for s in outer)
