"""Vector loops: pieces as wide as a register, and what is left, masked or narrower."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tensorlang import dtypes
from tensorlang.ir.expr import Call, Expr, Load, Var, walk
from tensorlang.ir.loops import constant_extent
from tensorlang.ir.stmt import Fail, For, If, Let, LoopKind, Prefetch, Seq, Stmt, Store, children, stmt_exprs
from tensorlang.ir.stmt import walk as statements
from tensorlang.lowering.passes.full_tile import full_tile
from tensorlang.target.llvm.alignment import iterations_to_line
from tensorlang.target.llvm.arithmetic import binary
from tensorlang.target.llvm.expressions import index
from tensorlang.target.llvm.scope import Lanes, Scope
from tensorlang.target.llvm.tails import first_lanes, is_short, masks_fit
from tensorlang.target.llvm.text import INDEX, Function, Value, literal

Emit = Callable[[Function, Scope, Stmt], None]
Repeat = Callable[[Function, Value, Value, Callable[[Value], None]], None]
_MOST_PIECES = 16
"""More full pieces than this become a loop."""
_MOST_LONG_PIECES = 4
"""The same for pieces that call functions, which are dozens of instructions each."""


def vectorizable(loop: For) -> bool:
    """Whether a vector loop can be emitted as vector code; if not, it runs one iteration at a time."""
    return _lanewise(loop.body, frozenset({loop.var.name}))


def vector_loop(fn: Function, scope: Scope, loop: For, emit: Emit, repeat: Repeat) -> None:
    """Emit a loop that is `vectorizable`."""
    moved, count = moved_by(loop), constant_extent(loop)
    bits = widest(moved)
    lower, lanes = index(fn, scope, loop.lower), fn.target.lanes(bits)
    reach = None if count is None or lower.integer is None else (lower.integer, lower.integer + count - 1)
    masked = masks_fit(fn, scope, loop, moved)
    pieces = _Pieces(fn, scope, loop, emit, lower, lanes, bits, reach, masked)
    most = most_iterations(loop) if count is None else count
    if count is None or (masked and count > _MOST_PIECES * lanes):
        rest = binary(fn, "max", binary(fn, "sub", index(fn, scope, loop.upper), lower), literal(0, INDEX))
        long = masked and (most is None or most > _MOST_PIECES * lanes)
        if long and pieces.aligned(rest, repeat):
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
    emit: Emit
    lower: Value
    lanes: int
    bits: int
    reach: tuple[int, int] | None
    masked: bool

    def known(self, count: int, repeat: Repeat) -> None:
        """A loop of constant extent."""
        full, rest = divmod(count, self.lanes)
        if full > (_MOST_LONG_PIECES if _calls(self.loop.body) else _MOST_PIECES):
            repeat(self.fn, literal(0, INDEX), literal(full, INDEX), self._full)
        else:
            for number in range(full):
                self._full(literal(number, INDEX))
        first = self._after(literal(full * self.lanes, INDEX))
        # Rows of less than a register, masked, overlap in memory: the next waits for the one before.
        if self.masked and full and rest & (rest - 1):
            self._masked(first, literal(rest, INDEX), _power_of_two(rest))
        elif rest:
            self._piece(first, rest)

    def unknown(self, count: Value, most: int | None, repeat: Repeat) -> None:
        """A loop of any extent; `most` is a bound that it is known to keep."""
        fn, done, rest = self.fn, literal(0, INDEX), count
        if most is None or most > self.lanes or not self.masked:
            whole = binary(fn, "floordiv", count, literal(self.lanes, INDEX))
            repeat(fn, literal(0, INDEX), whole, self._full)
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

    def aligned(self, count: Value, repeat: Repeat) -> bool:
        """A loop of any extent, its full pieces at the start of cache lines if it is long; False: nothing to gain."""
        fn, least = self.fn, _MOST_PIECES * self.lanes
        first = iterations_to_line(fn, self.scope, self.loop, self.lower, count, self.lanes, least)
        if first is None:
            return False
        with fn.when(binary(fn, "gt", first, literal(0, INDEX))):
            self._masked(self.lower, first, self.lanes)
        replace(self, lower=self._after(first)).unknown(binary(fn, "sub", count, first), None, repeat)
        return True

    def _narrower(self, count: Value) -> None:
        """Pieces of half the lanes, a quarter, ..., as the bits of the count ask."""
        fn, width = self.fn, self.lanes // 2
        while width:
            with fn.when(binary(fn, "ne", binary(fn, "bitand", count, literal(width, INDEX)), literal(0, INDEX))):
                self._piece(self._after(binary(fn, "bitand", count, literal(-2 * width, INDEX))), width)
            width //= 2

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
            self.emit(self.fn, replace(self.scope, lanes=lanes), self.loop.body)

    def _masked(self, first: Value, count: Value, width: int) -> None:
        self._piece(first, width, first_lanes(self.fn, count, width, self.bits), count.integer)


def _calls(body: Stmt) -> bool:
    return any(isinstance(node, Call) for expr in stmt_exprs(body) for node in walk(expr))


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


def moved_by(loop: For) -> tuple[str, ...]:
    """The dtypes that the body of a vector loop moves."""
    return tuple(_moved(loop.body, loop.var.name))


def widest(moved: tuple[str, ...]) -> int:
    """The bits of the widest dtype of those moved, as it is computed: a full piece is a register of it."""
    return max(map(_computed_bits, moved), default=32)


def _computed_bits(dtype: str) -> int:
    """Half precision is computed in float32, bools take a byte."""
    d = dtypes.info(dtype)
    return max(32, d.bits) if d.is_float else max(8, d.bits)


def _moved(stmt: Stmt, name: str) -> Iterator[str]:
    """The dtypes stored, and those loaded from places that vary with a variable."""
    for s in statements(stmt):
        if isinstance(s, Store):
            yield s.buffer.dtype
        for expr in _expressions(s):
            for node in walk(expr):
                if isinstance(node, Load) and any(_mentions(i, frozenset({name})) for i in node.index):
                    yield node.dtype


def _expressions(stmt: Stmt) -> tuple[Expr, ...]:
    match stmt:
        case Store():
            return (*stmt.index, stmt.value)
        case If():
            return (stmt.cond,)
        case Let():
            return (stmt.value,)
        case For():
            return (stmt.lower, stmt.upper)
    return ()
