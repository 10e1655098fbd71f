"""What the schedules of stages share that compute element by element: threads, vectors along memory, streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from tensorlang import dtypes
from tensorlang.ir.expr import Buffer, Expr, Load, Var, variables, walk
from tensorlang.ir.flat import flat_offset, row_major
from tensorlang.ir.simplify import simplify
from tensorlang.schedule import Schedule
from tensorlang.schedules.anchor import compute_op
from tensorlang.schedules.candidates import around
from tensorlang.schedules.room import Room
from tensorlang.target.spec import Target
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import ComputeOp, buffers

GRAIN = 32768
"""Elements of work below which threads cost more than they bring."""
_SHORT_ROW = 8
"""Elements of a row up to which vectors go on in the next row, if they are a power of two: a shift finds its number."""
_SHARES = 4
"""Pieces of work per thread, so that a thread that is held up does not hold up all."""


def schedule_elementwise(room: Room, name: str) -> None:
    """Run along memory in vectors, over as many dimensions at once as lie side by side; the outer ones in parallel."""
    op = room.s.program[name]
    if not isinstance(op, ComputeOp) or not op.axes:
        return
    names = [axis.name for axis in op.axes]
    if op.reduce_axes:
        run_in_parallel(room.s, name, names, room.target)
        return
    together = contiguous_axes(op)
    run_along(room, name, names[:-together], *names[-together:])


def run_along(room: Room, name: str, outer: Sequence[str], *inner: str) -> None:
    """Run along some loops, which lie side by side, in vectors, piece by piece where threads had too few others."""
    s, target = room.s, room.target
    stage, op = s[name], compute_op(s, name)
    extents = {axis.name: extent_of(axis.extent) for axis in op.axes}
    rows, length = prod(extents[axis] or _SHARES for axis in outer), prod(extents[axis] or GRAIN for axis in inner)
    along = stage.fuse(*inner).name if len(inner) > 1 else inner[0]
    chunk = _chunk(length, rows, dtypes.info(op.dtype).bits, target)
    if chunk is not None:
        chunk = room.choose("chunk", around(chunk, length), chunk) if name == room.stage else chunk
        first, vector = stage.split(along, factor=chunk)
        outer, along = [*outer, first.name], vector.name
    stage.vectorize(along)
    stream_out(s, name, along, target)
    run_in_parallel(s, name, outer, target)


def contiguous_axes(op: ComputeOp) -> int:
    """How many of the last axes every access runs along as along one row of memory (or does not depend on).

    Whatever else knows an axis (a choice at the border) takes it from the place in the row, by a division for each
    element: then rows stay apart, unless the division is a shift and they are short.
    """
    known = _known_apart(op)
    for count in range(len(op.axes), 1, -1):
        length = prod(extent_of(axis.extent) or GRAIN for axis in op.axes[1 - count :])
        apart = not _is_short(length) and not known.isdisjoint(axis.name for axis in op.axes[-count:])
        if not apart and all(is_one_row(load, op, count) for load in _loads(op)):
            return count
    return 1


def _is_short(length: int) -> bool:
    return length <= _SHORT_ROW and length & (length - 1) == 0


def run_in_parallel(s: Schedule, name: str, outer: Sequence[str], target: Target, work: int | None = None) -> str:
    """Fuse the outer loops of a stage, and share them among threads if there is work enough; the loop of these.

    `work`: elements that are computed in the loops, those of the stage unless given.
    """
    stage = s[name]
    if not outer:
        return ""
    shared = list(outer)
    while len(shared) > 1 and any(extent_of(s.state.axis(name, a).extent) is None for a in shared[1:]):
        shared.pop()
    loop = stage.fuse(*shared).name if len(shared) > 1 else shared[0]
    enough = (work_of(compute_op(s, name)) if work is None else work) >= GRAIN
    if target.cores > 1 and enough and extent_of(s.state.axis(name, loop).extent) != 1:
        stage.parallel(loop)
    return outer[-1] if len(shared) < len(outer) else loop


def work_of(op: ComputeOp) -> int:
    """How many elements a stage computes, or reduces; much where an extent is symbolic."""
    return prod(GRAIN if n is None else n for n in (extent_of(a.extent) for a in (*op.axes, *op.reduce_axes)))


def stream_out(s: Schedule, name: str, vector: str, target: Target) -> None:
    """Write past the caches what the last of them cannot hold."""
    if any(is_larger(array, target.caches[-1:]) for array in buffers(s.program[name])):
        s[name].pragma(vector, "nontemporal")


def is_larger(array: Buffer, caches: Sequence[int]) -> bool:
    """Whether an array of known size is larger than a cache; `caches` is empty where there is none."""
    extents = [extent_of(n) for n in array.shape]
    size = prod(n or 0 for n in extents) * dtypes.info(array.dtype).bits // 8
    return None not in extents and bool(caches) and size > caches[0]


def _chunk(length: int, rows: int, bits: int, target: Target) -> int | None:
    """How far a thread runs along memory at a time; None: to the end of the row."""
    shares = target.cores * _SHARES
    if target.cores == 1 or rows >= shares or length * rows < GRAIN:
        return None
    line = 512 // bits
    wanted = max(GRAIN // 4, -(-length * rows // shares))
    return -(-wanted // line) * line if wanted < length else None


def _known_apart(op: ComputeOp) -> set[str]:
    """The variables of a stage's body but for those of what it reads."""
    found, seen, left = set[str](), set[int](), list[Expr](op.body)
    while left:
        node = left.pop()
        if id(node) in seen or isinstance(node, Load):
            continue
        seen.add(id(node))
        if isinstance(node, Var):
            found.add(node.name)
        left.extend(node.children())
    return found


def _loads(op: ComputeOp) -> Iterator[Load]:
    return (node for body in op.body for node in walk(body) if isinstance(node, Load))


def is_one_row(load: Load, op: ComputeOp, count: int) -> bool:
    """Whether an access is one row over so many last axes: along memory as they are, or independent of them."""
    axes, names = op.axes[-count:], {axis.name for axis in op.axes[-count:]}
    if not any(variables(i) & names for i in load.index):
        return True
    shape, extents = [extent_of(n) for n in load.buffer.shape], [extent_of(a.extent) for a in axes]
    if None in shape or None in extents:
        return False
    own = flat_offset([axis.as_expr() for axis in axes], row_major([n or 0 for n in extents]), {})
    known = {axis.name: extent_of(axis.extent) for axis in op.axes}
    ranges = {name: (0, max(n, 1) - 1) for name, n in known.items() if n is not None}
    offset = flat_offset(load.index, row_major([n or 0 for n in shape]), ranges)
    return not variables(simplify(offset - own, ranges)) & names
