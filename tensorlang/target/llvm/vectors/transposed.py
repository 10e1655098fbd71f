"""Strided reads of a vector loop, turned around: whole rows along a loop inside it, transposed in registers.

In `vectorized w: for c: B[c, w] = A[w, c]` the lanes of a read are rows apart, but its neighbours along `c` are not.
Sixteen rows of sixteen elements take sixteen loads and four rounds of shuffles, instead of a load for each element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tensorlang import dtypes
from tensorlang.ir.expr import Load
from tensorlang.ir.loops import constant_extent
from tensorlang.ir.stmt import For, LoopKind, Seq, Stmt, Store
from tensorlang.target.llvm import memory
from tensorlang.target.llvm.arithmetic import binary
from tensorlang.target.llvm.expressions import coefficient, index, place
from tensorlang.target.llvm.scope import Scope, certain_reads
from tensorlang.target.llvm.text import INDEX, Function, Value, literal

Emit = Callable[[Function, Scope, Stmt], None]
Repeat = Callable[[Function, Value, Value, Callable[[Value], None]], None]
_MOST_BLOCKS = 4
"""More blocks than this become a loop."""
_FAR = 4
"""Lanes further apart than this are not read by one wide load."""


def rows(scope: Scope, loop: For) -> tuple[Load, ...]:
    """The reads of a serial loop inside a vector loop that are worth transposing; none of a loop that is not plain.

    What is read under a condition may lie outside of its array.
    """
    extent = constant_extent(loop)
    stores = straight(loop.body)
    if loop.kind is not LoopKind.SERIAL or scope.lanes is None:
        return ()
    if scope.lanes.mask is not None and scope.lanes.active is None:
        return ()
    if extent is None or extent < 2 or stores is None:
        return ()
    written = {store.buffer.name for store in stores}
    reads = dict.fromkeys(read for store in stores for read in certain_reads(store.value))
    return tuple(
        read
        for read in reads
        if read.buffer.name not in written
        and abs(distance(scope, read, scope.lanes.var) or 0) > _FAR
        and distance(scope, read, loop.var.name) in (1, -1)
    )


def transposed_loop(fn: Function, scope: Scope, loop: For, reads: tuple[Load, ...], emit: Emit, repeat: Repeat) -> None:
    """Emit a loop whose `reads` are `rows`."""
    extent, lower = constant_extent(loop) or 0, index(fn, scope, loop.lower)
    columns = min(fn.target.lanes(max(32, dtypes.info(read.dtype).bits)) for read in reads)
    full = extent // columns

    def block(first: Value, count: int) -> None:
        made = [_columns(fn, scope, read, loop.var.name, first, count) for read in reads]
        for number in range(count):
            held: Mapping[Load, Value] = {read: part[number] for read, part in zip(reads, made, strict=True)}
            at = binary(fn, "add", first, literal(number, INDEX))
            emit(fn, replace(scope.bind(loop.var.name, at), held=held), loop.body)

    def full_block(number: Value) -> None:
        block(binary(fn, "add", lower, binary(fn, "mul", number, literal(columns, INDEX))), columns)

    if full > _MOST_BLOCKS:
        repeat(fn, literal(0, INDEX), literal(full, INDEX), full_block)
    else:
        for number in range(full):
            full_block(literal(number, INDEX))
    if extent % columns:
        block(binary(fn, "add", lower, literal(full * columns, INDEX)), extent % columns)


def straight(stmt: Stmt) -> list[Store] | None:
    """The stores of a body without loops and conditions."""
    match stmt:
        case Store():
            return [stmt]
        case Seq():
            parts = [straight(part) for part in stmt.body]
            return None if None in parts else [store for part in parts for store in part or ()]
    return None


def distance(scope: Scope, read: Load, name: str) -> int | None:
    """How many elements a read moves along with a variable, if that is one constant."""
    assert scope.lanes is not None
    along, total = replace(scope, lanes=replace(scope.lanes, var=name)), 0
    for part, stride in zip(read.index, scope.storage(read.buffer).strides, strict=True):
        factor = coefficient(along, scope.expanded(part))
        if factor is None or (factor and stride.integer is None):
            return None
        total += factor * (stride.integer or 0)
    return total


def _columns(fn: Function, scope: Scope, read: Load, name: str, first: Value, count: int) -> list[Value]:
    """The values of a read in `count` iterations from `first` on, all lanes of each."""
    lanes = scope.lanes
    assert lanes is not None
    backwards = distance(scope, read, name) == -1
    begin = binary(fn, "add", first, literal(count - 1, INDEX)) if backwards else first
    access = Load(read.buffer, tuple(scope.expanded(i) for i in read.index))
    loaded: list[Value] = []
    for lane in range(lanes.width if lanes.active is None else lanes.active):
        at = scope.scalar(binary(fn, "add", lanes.first, literal(lane, INDEX))).bind(name, begin)
        where = replace(place(fn, at, access), width=count, step=literal(1, INDEX))
        loaded.append(memory.load(fn, where, None))
    columns = _transposed(fn, loaded, lanes.width)
    return columns[::-1] if backwards else columns


def _transposed(fn: Function, parts: list[Value], lanes: int) -> list[Value]:
    """The columns of rows of equal length, as vectors: blocks change places over half the size, a quarter, ... one.

    Of rows that are shorter than vectors, several lie in one. Lanes beyond the last row hold anything.
    """
    width, dtype = parts[0].lanes, parts[0].dtype
    columns, size = (1 << (n - 1).bit_length() for n in (width, max(lanes, width)))
    grown = [memory.shuffle(fn, row, row, [*range(width), *[-1] * (columns - width)]) for row in parts]
    lines = [*grown, *[Value("poison", dtype, columns)] * (size - len(parts))]
    square = [_joined(fn, lines[number::columns]) for number in range(columns)]
    apart = columns // 2
    while apart:
        low = [lane - apart + size if lane & apart else lane for lane in range(size)]
        high = [lane + size if lane & apart else lane + apart for lane in range(size)]
        for i in (i for i in range(columns) if not i & apart):
            a, b = square[i], square[i + apart]
            square[i], square[i + apart] = memory.shuffle(fn, a, b, low), memory.shuffle(fn, a, b, high)
        apart //= 2
    return [memory.shuffle(fn, column, column, list(range(lanes))) for column in square[:width]]


def _joined(fn: Function, parts: list[Value]) -> Value:
    """A power of two of vectors behind one another."""
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [memory.shuffle(fn, a, b, list(range(2 * a.lanes))) for a, b in pairs]
    return parts[0]
