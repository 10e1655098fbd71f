"""Vector loops: pieces as wide as a register, and a last one that is narrower or masked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tensorlang import dtypes
from tensorlang.ir.expr import Expr, Load, Var, walk
from tensorlang.ir.expr import binary as compare
from tensorlang.ir.loops import constant_extent
from tensorlang.ir.stmt import Fail, For, If, Let, LoopKind, Prefetch, Seq, Stmt, Store, children
from tensorlang.ir.stmt import walk as statements
from tensorlang.target.llvm.arithmetic import binary
from tensorlang.target.llvm.expressions import index
from tensorlang.target.llvm.scope import Lanes, Scope
from tensorlang.target.llvm.text import INDEX, Function, Value, literal
from tensorlang.target.spec import Target

Emit = Callable[[Function, Scope, Stmt], None]
Repeat = Callable[[Function, Value, Value, Callable[[Value], None]], None]
_MOST_PIECES = 16
"""More full pieces than this become a loop."""


def vectorizable(loop: For) -> bool:
    """Whether a vector loop can be emitted as vector code; if not, it runs one iteration at a time."""
    return _lanewise(loop.body, frozenset({loop.var.name}))


def vector_loop(fn: Function, scope: Scope, loop: For, emit: Emit, repeat: Repeat) -> None:
    """Emit a loop that is `vectorizable`."""
    count, lanes = constant_extent(loop), _width(loop, fn.target)
    lower = index(fn, scope, loop.lower)

    def piece(first: Value, width: int, body: Stmt = loop.body) -> None:
        if width == 1:
            emit(fn, scope.bind(loop.var.name, first), body)
        else:
            emit(fn, replace(scope, lanes=Lanes(loop.var.name, first, width)), body)

    def start(number: Value) -> Value:
        return binary(fn, "add", lower, binary(fn, "mul", number, literal(lanes, INDEX)))

    def full_piece(number: Value) -> None:
        piece(start(number), lanes)

    if count is None:
        rest = binary(fn, "max", binary(fn, "sub", index(fn, scope, loop.upper), lower), literal(0, INDEX))
        whole = binary(fn, "floordiv", rest, literal(lanes, INDEX))
        repeat(fn, literal(0, INDEX), whole, full_piece)
        inside = If(compare("lt", loop.var, loop.upper), loop.body)
        with fn.when(binary(fn, "ne", rest, binary(fn, "mul", whole, literal(lanes, INDEX)))):
            piece(start(whole), lanes, inside)
        return
    full = count // lanes
    if full > _MOST_PIECES:
        repeat(fn, literal(0, INDEX), literal(full, INDEX), full_piece)
    else:
        for number in range(full):
            full_piece(literal(number, INDEX))
    if count % lanes:
        piece(binary(fn, "add", lower, literal(full * lanes, INDEX)), count % lanes)


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


def _width(loop: For, target: Target) -> int:
    """Lanes of a full piece: a register of the widest dtype that the loop body moves."""
    bits = [_computed_bits(dtype) for dtype in _moved(loop.body, loop.var.name)]
    return target.lanes(max(bits, default=32))


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
