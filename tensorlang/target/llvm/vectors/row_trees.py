"""Reductions of neighbouring rows, in a vector loop across them: `vectorized w: for k: C[w] = C[w] + f(w, k)`.

With the pragma `reduce_tree`, and where the terms of a row lie side by side, each row is summed in a vector. Two
vectors become one that has half as many lanes of each, pairs of lanes being added, until one has a lane of every row:
three operations for each row but one. To turn all rows around first takes a shuffle of each for every round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tensorlang import dtypes
from tensorlang.ir.expr import Load, walk
from tensorlang.ir.loops import constant_extent
from tensorlang.ir.stmt import For
from tensorlang.target.llvm import memory
from tensorlang.target.llvm.arithmetic import binary
from tensorlang.target.llvm.expressions import index
from tensorlang.target.llvm.scope import Scope
from tensorlang.target.llvm.text import INDEX, Function, Value, literal
from tensorlang.target.llvm.vectors.reduction import Tree, is_asked, update, updates
from tensorlang.target.llvm.vectors.transposed import distance

Repeat = Callable[[Function, Value, Value, Callable[[Value], None]], None]
_CHUNK = 128
"""Bits within which one instruction moves elements of two vectors anywhere; others move such chunks as a whole."""


def are_rows(scope: Scope, loop: For) -> bool:
    """Whether a loop is to be emitted by `rows_loop`: rows are whole vectors, as wide as the loop around it."""
    lanes, count = scope.lanes, constant_extent(loop)
    if lanes is None or lanes.mask is not None or scope.varying or not count or not is_asked(loop):
        return False
    if count % lanes.width or lanes.width & (lanes.width - 1):
        return False
    reads = {node for _, operation in updates(loop) for node in walk(operation.b) if isinstance(node, Load)}
    apart = [(distance(scope, read, lanes.var), distance(scope, read, loop.var.name)) for read in reads]
    return all(along in (0, 1) for _, along in apart) and any(along and down not in (0, 1) for down, along in apart)


def rows_loop(fn: Function, scope: Scope, loop: For, repeat: Repeat) -> None:
    """Emit a loop that `are_rows`."""
    lanes, found, count = scope.lanes, updates(loop), constant_extent(loop) or 0
    assert lanes is not None
    operations, bits = tuple(operation for _, operation in found), 8 * dtypes.info(found[0][1].dtype).bytes
    lower, rows = index(fn, scope, loop.lower), list[list[Value]]()
    for lane in range(lanes.width):
        row = replace(scope.scalar(binary(fn, "add", lanes.first, literal(lane, INDEX))), held={})
        tree = Tree(fn, row, loop.var.name, operations, lower, lanes.width, bits, False, repeat)
        rows.append(tree.whole(count // lanes.width))
    for (store, operation), vectors in zip(found, zip(*rows, strict=True), strict=True):
        update(fn, scope, store, operation, _lane_of_each(fn, operation.op, list(vectors)))


def _lane_of_each(fn: Function, op: str, vectors: list[Value]) -> Value:
    """As many vectors as each has lanes, combined to one whose lanes are the reductions of each."""
    width = vectors[0].lanes
    chunk = min(width, _CHUNK // dtypes.info(vectors[0].dtype).bits)
    while len(vectors) > 1:
        inside = width // len(vectors) < chunk
        even, odd = _pairs(width, *((1, chunk) if inside else (chunk, width)))
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [binary(fn, op, memory.shuffle(fn, a, b, even), memory.shuffle(fn, a, b, odd)) for a, b in pairs]
    return vectors[0]


def _pairs(width: int, unit: int, group: int) -> tuple[list[int], list[int]]:
    """Units of two vectors with an even number, and those with an odd one: in each group the first vector's first."""
    firsts = [
        first + source * width + at
        for first in range(0, width, group)
        for source in (0, 1)
        for at in range(0, group, 2 * unit)
    ]
    even, odd = ([first + side + n for first in firsts for n in range(unit)] for side in (0, unit))
    return even, odd
