"""Short constructors of loop IR: Python integers stand for int64 constants, sequences for Seq."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tensorlang.ir.expr import Buffer, Const, Expr, Load, Var, as_expr
from tensorlang.ir.stmt import INDEX, For, Kernel, LoopKind, Seq, Stmt, Store

IndexLike: TypeAlias = Expr | int
StmtLike: TypeAlias = Stmt | Sequence[Stmt]


def index(value: IndexLike) -> Expr:
    """An int64 expression."""
    return Const(value, INDEX) if isinstance(value, int) else value


def indices(names: str) -> tuple[Var, ...]:
    """int64 variables from names with blanks between: `i, j = indices("i j")`."""
    return tuple(Var(name, INDEX) for name in names.split())


def array(name: str, shape: Sequence[IndexLike], dtype: str = "float32", scope: str = "global") -> Buffer:
    """A buffer."""
    return Buffer(name, tuple(index(extent) for extent in shape), dtype, scope)


def load(buffer: Buffer, *where: IndexLike) -> Load:
    """`buffer[where]`."""
    return Load(buffer, tuple(index(i) for i in where))


def store(buffer: Buffer, where: Sequence[IndexLike] | IndexLike, value: Expr | float) -> Store:
    """`buffer[where] = value`; a number takes the buffer's dtype."""
    place = where if isinstance(where, Sequence) else (where,)
    return Store(buffer, tuple(index(i) for i in place), as_expr(value, buffer.dtype))


def block(body: StmtLike) -> Stmt:
    """A statement from a sequence of them."""
    if not isinstance(body, Sequence):
        return body
    return body[0] if len(body) == 1 else Seq(tuple(body))


def loop(
    var: Var,
    lower: IndexLike,
    upper: IndexLike,
    body: StmtLike,
    kind: LoopKind = LoopKind.SERIAL,
    thread: str = "",
    axis: str = "",
) -> For:
    """`for var in range(lower, upper): body`; the axis is named like the variable unless told."""
    return For(var, index(lower), index(upper), kind, block(body), axis or var.name, thread)


def kernel(name: str, params: Sequence[Buffer], outputs: str, body: StmtLike, sizes: Sequence[Var] = ()) -> Kernel:
    """A kernel; `outputs` are parameter names with blanks between."""
    return Kernel(name, tuple(params), tuple(sizes), tuple(outputs.split()), block(body))
