"""Vector loops: pieces as wide as a register, and what is left, masked or narrower."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Expr, Load, Var, walk
from tensorlang.ir.loops import constant_extent
from tensorlang.ir.stmt import Fail, For, If, Let, LoopKind, Prefetch, Seq, Stmt, Store, children
from tensorlang.lowering.passes.full_tile import full_tile
from tensorlang.target.llvm.arithmetic import binary, select
from tensorlang.target.llvm.expressions import index
from tensorlang.target.llvm.saturating import lanes_together
from tensorlang.target.llvm.scope import Lanes, Scope
from tensorlang.target.llvm.text import INDEX, Function, Value, literal
from tensorlang.target.llvm.vectors.alignment import LINE, is_row, iterations_to_line, stores_of_lines
from tensorlang.target.llvm.vectors.body import Body, body_of
from tensorlang.target.llvm.vectors.interleaved import taken_apart
from tensorlang.target.llvm.vectors.overlaps import Held, Read, carried, overlaps
from tensorlang.target.llvm.vectors.tails import first_lanes, is_short, masks_fit, these_lanes

Emit = Callable[[Function, Scope, Stmt], None]
Repeat = Callable[[Function, Value, Value, Callable[[Value], None]], None]
_MOST_PIECES = 16
"""More full pieces than this become a loop."""
_MOST_LONG_PIECES = 4
"""The same for pieces that call functions, which are dozens of instructions each."""
_TOGETHER = 8
"""Pieces in a row that share the lines that they read."""


def vectorizable(loop: For) -> bool:
    """Whether a vector loop can be emitted as vector code; if not, it runs one iteration at a time."""
    return _lanewise(loop.body, frozenset({loop.var.name}))


def vector_loop(fn: Function, scope: Scope, loop: For, emit: Emit, repeat: Repeat) -> None:
    """Emit a loop that is `vectorizable`."""
    body, count = body_of(loop), constant_extent(loop)
    moved = body.moved(loop.var.name)
    bits = widest(moved)
    lower, lanes = index(fn, scope, loop.lower), fn.target.lanes(bits)
    reach = None if count is None or lower.integer is None else (lower.integer, lower.integer + count - 1)
    masked = masks_fit(fn, scope, loop, body, moved)
    pieces = _Pieces(fn, scope, loop, body, emit, lower, lanes, bits, reach, masked)
    most = most_iterations(loop) if count is None else count
    if count is None:
        rest = binary(fn, "max", binary(fn, "sub", index(fn, scope, loop.upper), lower), literal(0, INDEX))
    else:
        rest = literal(count, INDEX)
    if masked and pieces.aligned(rest, most, repeat):
        return
    if count is None:
        pieces.unknown(rest, most, repeat)
    else:
        pieces.known(count, repeat)


@dataclass(frozen=True, slots=True)
class _Pieces:
    """A vector loop as it is emitted, in pieces of `lanes` iterations, and how its tail may run."""

    fn: Function
    scope: Scope
    loop: For
    body: Body
    emit: Emit
    lower: Value
    lanes: int
    bits: int
    reach: tuple[int, int] | None
    masked: bool
    stored: Store | None = None

    def known(self, count: int, repeat: Repeat) -> None:
        """A loop of constant extent."""
        stores = () if self.stored else [written.store for written in self.body.stores]
        wide = lanes_together(self.fn, stores, self.lanes, count)
        if wide == self.lanes:
            self._known(count, repeat)
            return
        whole = count - count % wide
        replace(self, lanes=wide)._known(whole, repeat)
        replace(self, lower=self._after(literal(whole, INDEX))).known(count - whole, repeat)

    def _known(self, count: int, repeat: Repeat) -> None:
        full, rest = divmod(count, self.lanes)
        if full > (_MOST_LONG_PIECES if self.body.calls else _MOST_PIECES):
            self._repeated(literal(full, INDEX), repeat)
        else:
            self._together(literal(0, INDEX), self._shared(full), full)
        first = self._after(literal(full * self.lanes, INDEX))
        # Rows of less than a register, masked, overlap in memory: the next waits for the one before.
        if rest and self._shared(1):
            self._edge(first, range(rest))
        elif self.masked and full and rest & (rest - 1):
            self._masked(first, literal(rest, INDEX), _power_of_two(rest))
        elif rest:
            self._piece(first, rest)

    def unknown(self, count: Value, most: int | None, repeat: Repeat) -> None:
        """A loop of any extent; `most` is a bound that it is known to keep."""
        fn, done, rest = self.fn, literal(0, INDEX), count
        if most is None or most > self.lanes or not self.masked:
            whole = binary(fn, "floordiv", count, literal(self.lanes, INDEX))
            self._repeated(whole, repeat)
            done = binary(fn, "mul", whole, literal(self.lanes, INDEX))
            rest = binary(fn, "sub", count, done)
        if self.masked:
            width = self.lanes if most is None else min(self.lanes, _power_of_two(most))
            with fn.when(binary(fn, "gt", rest, literal(0, INDEX))):
                self._masked(self._after(done), rest, width)
        elif is_short(self.loop.body):
            self._narrower(count)
        else:
            repeat(fn, done, count, lambda at: self._piece(self._after(at), 1))

    def aligned(self, count: Value, most: int | None, repeat: Repeat) -> bool:
        """A loop whose full pieces begin at cache lines; False: it is not worth it, or stores no row of lines.

        It is for long loops, and for those whose pieces share lines that they read.
        """
        fn, long = self.fn, most is None or most > _MOST_PIECES * self.lanes
        for stored in stores_of_lines(self.scope, self.loop, self.body, self.lanes, long):
            after = replace(self, stored=stored)
            shares = bool(after._shared(_TOGETHER))
            if (long or shares) and is_row(fn, self.scope, self.loop, stored, self.lanes):
                break
        else:
            return False
        missing = iterations_to_line(fn, self.scope, self.loop, stored, self.lower, self.lanes)
        if shares:
            first = binary(fn, "min", missing, count)
        elif count.integer is None:
            least = literal(_MOST_PIECES * self.lanes, INDEX)
            first = select(fn, binary(fn, "ge", count, least), missing, literal(0, INDEX))
        else:
            first = missing
        if missing.integer and first.integer:
            before = self.lanes - missing.integer
            line = binary(fn, "sub", self.lower, literal(before, INDEX))
            after._edge(line, range(before, before + first.integer))
        elif first.integer is None:
            with fn.when(binary(fn, "gt", first, literal(0, INDEX))):
                self._masked(self.lower, first, self.lanes)
        after, count = replace(after, lower=self._after(first)), binary(fn, "sub", count, first)
        if count.integer is None:
            after.unknown(count, None, repeat)
        else:
            after.known(count.integer, repeat)
        return True

    def _narrower(self, count: Value) -> None:
        """Pieces of half the lanes, a quarter, ..., as the bits of the count ask."""
        fn, width = self.fn, self.lanes // 2
        while width:
            with fn.when(binary(fn, "ne", binary(fn, "bitand", count, literal(width, INDEX)), literal(0, INDEX))):
                self._piece(self._after(binary(fn, "bitand", count, literal(-2 * width, INDEX))), width)
            width //= 2

    def _repeated(self, count: Value, repeat: Repeat) -> None:
        """So many full pieces; those that share lines, several at a time."""
        fn, done = self.fn, literal(0, INDEX)
        reads = self._shared(_TOGETHER)
        if reads:
            groups = binary(fn, "floordiv", count, literal(_TOGETHER, INDEX))
            with nullcontext() if groups.integer else fn.when(binary(fn, "gt", groups, done)):
                self._groups(groups, reads, repeat)
            done = binary(fn, "mul", groups, literal(_TOGETHER, INDEX))
            if count.integer is not None and done.integer is not None:
                self._together(done, self._shared(count.integer - done.integer), count.integer - done.integer)
                return
        repeat(fn, done, count, self._full)

    def _groups(self, count: Value, reads: tuple[Read, ...], repeat: Repeat) -> None:
        """Groups of pieces, at least one; each hands its last lines to the next, in memory that becomes registers."""
        fn, kept = self.fn, carried(reads, self.lanes, _TOGETHER)
        before = self._held(self.lower)
        slots: dict[tuple[Load, int], str] = {}
        for key, read in kept.items():
            line = before.line(read, key[1])
            slots[key] = fn.alloca(line.type, LINE)
            fn.do(f"store {line.typed}, ptr {slots[key]}, align {LINE}")

        def group(number: Value) -> None:
            lines = {}
            for key, slot in slots.items():
                kind = before.lines[key]
                lines[key] = fn.value(f"load {kind.type}, ptr {slot}, align {LINE}", kind.dtype, kind.lanes)
            held = self._together(binary(fn, "mul", number, literal(_TOGETHER, INDEX)), reads, _TOGETHER, lines)
            for (row, line), slot in slots.items():
                fn.do(f"store {held.lines[row, line + _TOGETHER].typed}, ptr {slot}, align {LINE}")

        repeat(fn, literal(0, INDEX), count, group)

    def _shared(self, pieces: int) -> tuple[Read, ...]:
        """The reads of pieces in a row that are made of whole lines; none where copies of pieces would be long."""
        if self.stored is None or not pieces or self.body.calls:
            return ()
        return overlaps(self.scope, self.loop, self.stored, self.lanes, pieces)

    def _held(self, first: Value, lines: Mapping[tuple[Load, int], Value] | None = None) -> Held:
        lanes = Lanes(self.loop.var.name, first, self.lanes, None, self.reach)
        return Held(self.fn, self.scope, lanes, dict(lines or {}))

    def _together(
        self,
        number: Value,
        reads: tuple[Read, ...],
        pieces: int,
        lines: Mapping[tuple[Load, int], Value] | None = None,
    ) -> Held:
        """Full pieces from one on, some of whose lines may be at hand."""
        first = self._after(binary(self.fn, "mul", number, literal(self.lanes, INDEX)))
        held = self._held(first, lines)
        for piece in range(pieces):
            at = binary(self.fn, "add", first, literal(piece * self.lanes, INDEX))
            self._with(held.values(reads, piece, range(self.lanes)))._piece(at, self.lanes)
        return held

    def _edge(self, first: Value, active: range) -> None:
        """Some lanes of a piece that begins at a line."""
        reads = self._held(first).values(self._shared(1), 0, active)
        known = active.stop if active.start == 0 else None
        self._with(reads)._piece(first, self.lanes, these_lanes(active, self.lanes), known)

    def _with(self, held: Mapping[Load, Value]) -> _Pieces:
        """The same, with the values of reads at hand."""
        return replace(self, scope=replace(self.scope, held={**self.scope.held, **held})) if held else self

    def _full(self, number: Value) -> None:
        self._piece(self._after(binary(self.fn, "mul", number, literal(self.lanes, INDEX))), self.lanes)

    def _after(self, done: Value) -> Value:
        return binary(self.fn, "add", self.lower, done)

    def _piece(self, first: Value, width: int, mask: Value | None = None, active: int | None = None) -> None:
        name = self.loop.var.name
        if width == 1:
            self.emit(self.fn, self.scope.bind(name, first), self.loop.body)
        else:
            lanes = Lanes(name, first, width, mask, self.reach, active)
            inside = replace(self.scope, lanes=lanes)
            held = taken_apart(self.fn, inside, self.loop.body) if self.body.has_neighbours(name) else {}
            self.emit(self.fn, replace(inside, held={**inside.held, **held}), self.loop.body)

    def _masked(self, first: Value, count: Value, width: int) -> None:
        self._piece(first, width, first_lanes(self.fn, count, width, self.bits), count.integer)


def _power_of_two(count: int) -> int:
    """The smallest power of two that is not below a count."""
    return 1 << (max(count, 1) - 1).bit_length()


def most_iterations(loop: For) -> int | None:
    """A bound on the iterations of a loop of unknown extent."""
    tile = full_tile(loop, {})
    return None if tile is None else tile.extent


def _lanewise(stmt: Stmt, names: frozenset[str]) -> bool:
    """Whether every statement can run in all lanes before the next; `names` differ between lanes."""
    match stmt:
        case Store() | Prefetch() | Fail():
            return True
        case Let():
            inner = names | {stmt.var.name} if _mentions(stmt.value, names) else names
            return _lanewise(stmt.body, inner)
        case If() | Seq():
            return all(_lanewise(s, names) for s in children(stmt))
        case For():
            plain = stmt.kind in (LoopKind.SERIAL, LoopKind.UNROLLED)
            uniform = not (_mentions(stmt.lower, names) or _mentions(stmt.upper, names))
            return plain and uniform and _lanewise(stmt.body, names)
    return False


def _mentions(expr: Expr, names: frozenset[str]) -> bool:
    return any(isinstance(n, Var) and n.name in names for n in walk(expr))


def widest(moved: Iterable[str]) -> int:
    """The bits of the widest dtype of those moved, as it is computed: a full piece is a register of it."""
    return max(map(_computed_bits, moved), default=32)


def _computed_bits(dtype: str) -> int:
    """Half precision is computed in float32, bools take a byte."""
    d = dtypes.info(dtype)
    return max(32, d.bits) if d.is_float else max(8, d.bits)
