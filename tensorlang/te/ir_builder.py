"""classic te's `tir.ir_builder`: the statements of an intrinsic's body, written one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tensorlang import dtypes
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Buffer, Const, Expr, ExprLike, Load, Var, as_expr, cast
from tensorlang.ir.index import to_index
from tensorlang.ir.machine import lanes
from tensorlang.ir.name_parts import MOST
from tensorlang.ir.stmt import INDEX, Allocate, For, If, Let, LoopKind, Seq, Stmt, Store
from tensorlang.location import caller
from tensorlang.te.machine import evaluate

_KINDS = {"serial": LoopKind.SERIAL, "unroll": LoopKind.UNROLLED}


class BufferVar:
    """An array in a builder: `a[i]` reads, `a[i] = x` writes. One index of an array of several dimensions counts
    its elements in row-major order.
    """

    def __init__(self, builder: IRBuilder, buffer: Buffer) -> None:
        self._builder = builder
        self._buffer = buffer

    @property
    def dtype(self) -> str:
        """The dtype of an element."""
        return self._buffer.dtype

    def __getitem__(self, index: Any) -> Load:
        return Load(self._buffer, element_index(self._buffer, index))

    def __setitem__(self, index: Any, value: Any) -> None:
        self._builder.emit(checked_store(self._buffer, element_index(self._buffer, index), value))


def element_index(buffer: Buffer, index: Any) -> tuple[Expr, ...]:
    """An index as int64 expressions; a single one of several dimensions is taken apart."""
    parts = tuple(index) if isinstance(index, tuple | list) else (index,)
    exprs = tuple(as_expr(p) for p in parts)
    for part in exprs:
        if not dtypes.info(part.dtype).is_integer or lanes(part):
            raise DefinitionError(f"{buffer.name} is indexed with {part}, which is no integer", caller())
    rank = len(buffer.shape)
    if len(exprs) == 1 and rank > 1:
        rest, found = exprs[0], list[Expr]()
        for extent in reversed(buffer.shape[1:]):
            found.insert(0, rest % extent)
            rest = rest // extent
        exprs = (rest, *found)
    if len(exprs) != rank:
        raise DefinitionError(f"{buffer.name} has {rank} dimensions, indexed with {len(exprs)}", caller())
    return tuple(to_index(e) for e in exprs)


def checked_store(buffer: Buffer, index: tuple[Expr, ...], value: Any) -> Store:
    """A store after checking the dtype; a number takes the buffer's."""
    expr = as_expr(value, buffer.dtype if isinstance(value, bool | int | float) else None)
    if expr.dtype != buffer.dtype:
        text = f"{buffer.name} holds {buffer.dtype}, got {expr.dtype} {expr}; convert it with .astype"
        raise DefinitionError(text, caller())
    if expr.levels > MOST:
        text = f"what is stored into {buffer.name} nests {expr.levels} levels of operations; name parts of it by ib.let"
        raise DefinitionError(text, caller())
    lanes(expr)
    return Store(buffer, index, expr)


class IRBuilder:
    """Collects statements. Blocks are opened by `with`: for_range, if_scope, else_scope."""

    def __init__(self) -> None:
        self._blocks: list[list[Stmt]] = [[]]
        self._count = 0

    def emit(self, stmt: Stmt | Expr) -> None:
        """Append a statement; an expression is evaluated for its effect."""
        self._blocks[-1].append(evaluate(stmt) if isinstance(stmt, Expr) else stmt)

    def get(self) -> Stmt:
        """The statements so far."""
        if len(self._blocks) > 1:
            raise DefinitionError("get() inside a with block of the builder; call it after the block", caller())
        return _completed(self._blocks[0])

    @contextmanager
    def for_range(
        self, begin: ExprLike, end: ExprLike, name: str = "i", dtype: str = "int32", kind: str = "serial"
    ) -> Iterator[Expr]:
        """`for name in range(begin, end)`; `kind` is serial or unroll."""
        if kind not in _KINDS:
            raise DefinitionError(f"for_range in an intrinsic is {' or '.join(_KINDS)}, got {kind!r}", caller())
        var = Var(self._fresh(name), INDEX)
        self._blocks.append([])
        yield cast(var, dtype)
        body = _completed(self._blocks.pop())
        lower, upper = to_index(as_expr(begin)), to_index(as_expr(end))
        self.emit(For(var, lower, upper, _KINDS[kind], body, axis=name))

    @contextmanager
    def if_scope(self, cond: ExprLike) -> Iterator[None]:
        """Run the statements of the block where a condition holds."""
        self._blocks.append([])
        yield
        then = _completed(self._blocks.pop())
        self.emit(If(as_expr(cond), then))

    @contextmanager
    def else_scope(self) -> Iterator[None]:
        """Run the statements of the block where the condition of the if_scope just before does not hold."""
        last = self._blocks[-1][-1] if self._blocks[-1] else None
        if not isinstance(last, If) or last.orelse is not None:
            raise DefinitionError("else_scope must follow an if_scope", caller())
        self._blocks.append([])
        yield
        orelse = _completed(self._blocks.pop())
        self._blocks[-1][-1] = If(last.cond, last.then, orelse)

    def allocate(self, dtype: str, shape: Sequence[int] | int, name: str = "buf", scope: str = "local") -> BufferVar:
        """A scratch array of constant shape, alive until the end of the block."""
        extents = tuple(shape) if isinstance(shape, Sequence) else (shape,)
        sizes = tuple(as_expr(e) for e in extents)
        if not all(isinstance(s, Const) and dtypes.info(s.dtype).is_integer and s.value > 0 for s in sizes):
            raise DefinitionError(f"{name} needs a shape of whole numbers, got {shape!r}", caller())
        buffer = Buffer(self._fresh(name), tuple(to_index(s) for s in sizes), dtypes.canonical(dtype), scope or "local")
        self._blocks[-1].append(Allocate(buffer, Seq(())))
        return BufferVar(self, buffer)

    def let(self, var_name: str, value: ExprLike) -> Var:
        """A named scalar, known until the end of the block."""
        expr = as_expr(value)
        var = Var(self._fresh(var_name), expr.dtype)
        self._blocks[-1].append(Let(var, expr, Seq(())))
        return var

    def buffer_ptr(self, buf: Any) -> BufferVar:
        """The elements of a buffer that the intrinsic works on."""
        return BufferVar(self, buf.buffer)

    def _fresh(self, name: str) -> str:
        """A name that no schedule axis and no tensor can have."""
        self._count += 1
        return f"{name}%{self._count}"


def create() -> IRBuilder:
    """Return an empty builder."""
    return IRBuilder()


def _completed(block: list[Stmt]) -> Stmt:
    """The statements of a block, the later ones inside the arrays and names that it declares."""
    done: list[Stmt] = []
    for stmt in reversed(block):
        match stmt:
            case Allocate(body=Seq(body=())):
                done = [Allocate(stmt.buffer, _sequence(done))]
            case Let(body=Seq(body=())) if stmt.var.name != "_":
                done = [Let(stmt.var, stmt.value, _sequence(done))]
            case _:
                done.insert(0, stmt)
    return _sequence(done)


def _sequence(stmts: list[Stmt]) -> Stmt:
    return stmts[0] if len(stmts) == 1 else Seq(tuple(stmts))
