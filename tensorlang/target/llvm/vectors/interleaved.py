"""Pixels in a vector loop: lanes touch every third element, say, and statements of the loop what lies between.

In `vectorized w: B[w, 0] = A[w, 2]; B[w, 1] = A[w, 1]; B[w, 2] = A[w, 0]` all reads together are one row of memory,
and so are all stores. Rows are read and written as they lie, and taken apart and put together in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from tensorlang.ir.affine import affine
from tensorlang.ir.expr import Load, walk
from tensorlang.ir.stmt import INDEX, Stmt, Store, stmt_exprs
from tensorlang.target.llvm import memory
from tensorlang.target.llvm.arithmetic import splat
from tensorlang.target.llvm.expressions import place
from tensorlang.target.llvm.scope import Scope, certain_reads
from tensorlang.target.llvm.text import Function, Value, literal
from tensorlang.target.llvm.vectors.transposed import distance, straight

_WIDEST = 8
"""Elements of a pixel at most."""

Write: TypeAlias = Callable[[Function, memory.Place, Value, Value | None], None]
"""What writes a vector where a mask says, or everywhere."""
Parts: TypeAlias = list[tuple[Load, int]]
"""Accesses to one pixel by each lane, and how far each lies behind the first of them; in order of memory."""


def taken_apart(fn: Function, scope: Scope, body: Stmt) -> dict[Load, Value]:
    """The values of reads of a piece that are one row together; none of reads under a condition."""
    stores = straight(body)
    if stores is None or scope.lanes is None or scope.lanes.mask is not None:
        return {}
    written = {store.buffer.name for store in stores}
    certain = dict.fromkeys(read for store in stores for read in certain_reads(store.value))
    reads = (read for read in certain if read.buffer.name not in written and read not in scope.held)
    found: dict[Load, Value] = {}
    for step, parts in _pixels(scope, reads):
        if len(parts) > 1:
            found |= _read(fn, scope, step, parts)
    return found


def put_together(scope: Scope, stmts: Sequence[Stmt]) -> dict[int, list[int]]:
    """Which of some statements store whole pixels, in order of memory, by the last of each; none where others run too.

    What is stored is not read by any of them, so that all stores of a pixel may wait for the last.
    """
    if scope.lanes is None:
        return {}
    stores = [stmt for stmt in stmts if isinstance(stmt, Store)]
    if len(stores) < len(stmts):
        return {}
    read = {n.buffer.name for s in stores for e in stmt_exprs(s) for n in walk(e) if isinstance(n, Load)}
    numbers = {Load(s.buffer, s.index): n for n, s in enumerate(stores) if s.buffer.name not in read}
    pixels = (parts for step, parts in _pixels(scope, numbers) if [apart for _, apart in parts] == [*range(step)])
    found = ([numbers[part] for part, _ in parts] for parts in pixels)
    return {max(members): members for members in found}


def write_pixels(fn: Function, start: memory.Place, values: Sequence[Value], mask: Value | None, write: Write) -> None:
    """Write some values of each lane side by side, lane after lane: a row that begins at `start`."""
    step, width = len(values), start.width
    vectors = [splat(fn, value, width) for value in values]
    for first in range(0, step * width, width):
        elements = range(first, first + width)
        row = Value("poison", vectors[0].dtype, width)
        for number, vector in enumerate(vectors):
            picks = [width + e // step if e % step == number else lane for lane, e in enumerate(elements)]
            row = memory.shuffle(fn, row, vector, picks)
        wanted = None if mask is None else memory.shuffle(fn, mask, mask, [e // step for e in elements])
        pointer = fn.element(start.element, start.pointer, first) if first else start.pointer
        write(fn, replace(start, pointer=pointer, step=literal(1, INDEX)), row, wanted)


def _pixels(scope: Scope, accesses: Iterable[Load]) -> Iterator[tuple[int, Parts]]:
    """Accesses that touch elements of the same pixels, with the elements of one."""
    assert scope.lanes is not None
    rows: dict[Hashable, Parts] = {}
    for access in accesses:
        step = distance(scope, access, scope.lanes.var) or 0
        if 1 < step <= _WIDEST and scope.storage(access.buffer).strides:
            row, apart = _at(scope, access)
            rows.setdefault((step, row), []).append((access, apart))
    for (step, _), parts in rows.items():  # type: ignore[misc]
        waiting = sorted(parts, key=lambda part: part[1])
        while waiting:
            first = waiting[0][1]
            yield step, [(access, apart - first) for access, apart in waiting if apart < first + step]
            waiting = [part for part in waiting if part[1] >= first + step]


def _at(scope: Scope, access: Load) -> tuple[Hashable, int]:
    """Where an access begins: what it shares with others of its row, and a constant."""
    shared, apart = list[Hashable](), 0
    for part, stride in zip(access.index, scope.storage(access.buffer).strides, strict=True):
        form = affine(part)
        if form is None or stride.integer is None:
            shared.append(part)
        else:
            apart += form.get("", 0) * stride.integer
            shared.append(frozenset((name, factor) for name, factor in form.items() if name))
    return (access.buffer.name, *shared), apart


def _read(fn: Function, scope: Scope, step: int, parts: Parts) -> dict[Load, Value]:
    """Read all from the first to the last element, a vector at a time; the last vector ends with the last element."""
    first = place(fn, scope, parts[0][0])
    width = first.width
    span = (width - 1) * step + parts[-1][1] + 1
    starts = [min(start, span - width) for start in range(0, span, width)]
    rows = []
    for start in starts:
        pointer = fn.element(first.element, first.pointer, start) if start else first.pointer
        at = replace(first, pointer=pointer, step=literal(1, INDEX))
        rows.append(memory.load(fn, at, None))
    found: dict[Load, Value] = {}
    for access, apart in parts:
        elements = [apart + lane * step for lane in range(width)]
        made = Value("poison", rows[0].dtype, width)
        for number, (row, start) in enumerate(zip(rows, starts, strict=True)):
            inside = {lane: e - start for lane, e in enumerate(elements) if e // width == number}
            picks = [width + inside[lane] if lane in inside else lane for lane in range(width)]
            made = memory.shuffle(fn, made, row, picks) if inside else made
        found[access] = made
    return found
