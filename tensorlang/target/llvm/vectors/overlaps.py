"""Reads of a vector loop that overlap: every cache line is read once, and what lies across two is shuffled together.

A stencil reads a row at j - 1, j and j + 1. Two of the three lie across two lines and cost twice; but all of them, in
several pieces of the loop, need one or two lines more than there are pieces.
"""

from __future__ import annotations

from dataclasses import field, replace

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.affine import add, affine, is_constant
from tensorlang.ir.expr import Const, Load
from tensorlang.ir.stmt import INDEX, For, Store
from tensorlang.target.llvm import memory
from tensorlang.target.llvm.arithmetic import cast
from tensorlang.target.llvm.expressions import address, coefficient
from tensorlang.target.llvm.machine import reinterpret
from tensorlang.target.llvm.scope import Lanes, Scope, certain_reads
from tensorlang.target.llvm.text import Function, Value, literal, memory_type
from tensorlang.target.llvm.vectors.alignment import in_lines
from tensorlang.target.llvm.vectors.transposed import straight


@dataclass(frozen=True, slots=True)
class Read:
    """A read that begins `shift` elements behind the line that is number 0 of its row, in the first piece."""

    load: Load
    row: Load
    shift: int


def overlaps(scope: Scope, loop: For, stored: Store, lanes: int, pieces: int) -> tuple[Read, ...]:
    """The reads that so many pieces in a row had better make from whole lines; `stored` begins at a line in each.

    None that statements of the loop could change, and none that conditions could leave out.
    """
    wanted = replace(scope, lanes=Lanes(loop.var.name, literal(0, INDEX), lanes))
    stores = straight(loop.body) or []
    if not in_lines(scope, stored.buffer.name, lanes):
        return ()
    written = {store.buffer.name for store in stores}
    certain = dict.fromkeys(load for store in stores for load in certain_reads(store.value))
    found = (load for load in certain if load.buffer.name not in written and load.buffer.name in scope.buffers)
    reads = [read for load in found if (read := _read(wanted, load, stored, lanes)) is not None]
    rows: dict[Load, list[Read]] = {}
    for read in reads:
        rows.setdefault(read.row, []).append(read)
    return tuple(read for row in rows.values() if _pays(row, lanes, pieces) for read in row)


def _read(scope: Scope, load: Load, stored: Store, lanes: int) -> Read | None:
    """Where a read lies among the lines of its row, if it is a row and that is known."""
    if not in_lines(scope, load.buffer.name, lanes):
        return None
    *outer, last = load.index
    if coefficient(scope, last) != 1:
        return None
    at, line = affine(last), affine(stored.index[-1])
    if at is None or line is None or any(scope.varies(i) for i in outer):
        return None
    apart = add(at, line, -1)
    if not is_constant(apart):
        return None
    return Read(load, Load(load.buffer, (*outer, Const(0, INDEX))), apart.get("", 0))


def _pays(reads: list[Read], lanes: int, pieces: int) -> bool:
    """Whether whole lines are fewer than the lines that the reads touch one by one."""
    touched = [_lines(read, piece, range(lanes), lanes) for read in reads for piece in range(pieces)]
    return len({number for lines in touched for number in lines}) < sum(map(len, touched))


def _lines(read: Read, piece: int, active: range, lanes: int) -> range:
    """The lines that some lanes of a piece read."""
    first, last = read.shift + active.start, read.shift + active.stop - 1
    return range(piece + first // lanes, piece + last // lanes + 1)


def carried(reads: tuple[Read, ...], lanes: int, pieces: int) -> dict[tuple[Load, int], Read]:
    """The lines of so many pieces that the pieces before have read as well, each with a read of its row."""
    touched = {(r.row, n): r for r in reads for piece in range(pieces) for n in _lines(r, piece, range(lanes), lanes)}
    return {(row, n): read for (row, n), read in touched.items() if (row, n + pieces) in touched}


@dataclass(frozen=True, slots=True)
class Held:
    """What pieces that follow each other, the first of them at `first`, have read so far: lines by row and number."""

    fn: Function
    scope: Scope
    first: Lanes
    lines: dict[tuple[Load, int], Value] = field(default_factory=dict)

    def values(self, reads: tuple[Read, ...], piece: int, active: range) -> dict[Load, Value]:
        """The values of reads in some lanes of a piece; 0 is the first piece."""
        return {read.load: self._value(read, piece, active) for read in reads}

    def _value(self, read: Read, piece: int, active: range) -> Value:
        lanes, dtype = self.first.width, read.load.dtype
        skipped, inside = divmod(read.shift, lanes)
        wanted = _lines(read, piece, active, lanes)
        low, high = (self.line(read, n) if n in wanted else None for n in (piece + skipped, piece + skipped + 1))
        unread = Value("poison", _bits(dtype), lanes)
        joined = memory.shuffle(self.fn, low or unread, high or unread, list(range(inside, inside + lanes)))
        stored = "uint8" if dtype == "bool" else dtype
        return cast(self.fn, reinterpret(self.fn, joined, stored, lanes), dtype)

    def line(self, read: Read, number: int) -> Value:
        """A line of the row of a read."""
        if (read.row, number) not in self.lines:
            width, dtype = self.first.width, _bits(read.load.dtype)
            # Where the first piece is an edge, the first of its elements may lie in front of the array.
            pointer = address(self.fn, replace(self.scope, lanes=self.first), read.load)
            apart = number * width - read.shift
            if apart:
                pointer = self.fn.element(memory_type(dtype), pointer, apart)
            # LLVM joins integers by valignd, and floats by permutations, which take a register for their pattern.
            at = memory.Place(dtype, pointer, width, literal(1, INDEX))
            self.lines[read.row, number] = memory.load(self.fn, at, None)
        return self.lines[read.row, number]


def _bits(dtype: str) -> str:
    """Integers as wide as elements in memory."""
    return f"int{8 * dtypes.info(dtype).bytes}"
