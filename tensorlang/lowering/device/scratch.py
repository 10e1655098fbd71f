"""Scratch arrays that a thread has no registers for: in device memory, a copy for each iteration on threads."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from math import prod

from tensorlang import dtypes
from tensorlang.ir.expr import Buffer, Const, Expr, Load, binary, rewrite
from tensorlang.ir.stmt import Allocate, AtomicUpdate, For, LoopKind, Stmt, Store, map_children, map_exprs, walk
from tensorlang.lowering.device.threads import is_block_loop
from tensorlang.te.operation import HybridOp
from tensorlang.te.program import Program

_MOST = 256
"""Bytes of an array that a thread keeps for itself."""


def scratch_of(program: Program) -> frozenset[str]:
    """The arrays that ordered statements declare inside of their loops, each iteration one of its own."""
    loops = (s for op in program.ops if isinstance(op, HybridOp) for s in walk(op.body) if isinstance(s, For))
    return frozenset(s.buffer.name for loop in loops for s in walk(loop.body) if isinstance(s, Allocate))


def in_device_memory(stmt: Stmt, names: Collection[str]) -> tuple[Stmt, tuple[Buffer, ...]]:
    """A nest whose scratch arrays with these names, if they are large, are allocated outside of it, and these arrays.

    Neighbouring threads have neighbouring elements: the dimensions of threads are last.
    """
    moved: list[Buffer] = []

    def visit(s: Stmt, around: tuple[For, ...]) -> Stmt:
        if isinstance(s, For) and s.kind is LoopKind.BOUND:
            return map_children(s, lambda body: visit(body, (*around, s)))
        if not isinstance(s, Allocate) or s.buffer.name not in names or s.threads or not around or _is_small(s.buffer):
            return map_children(s, lambda body: visit(body, around))
        outer = [loop for loop in around if is_block_loop(loop)]
        inner = [loop for loop in around if not is_block_loop(loop)]
        shape = (*_extents(outer), *s.buffer.shape, *_extents(inner))
        moved.append(replace(s.buffer, shape=shape, scope="global"))
        return visit(_placed(s.body, s.buffer.name, moved[-1], _places(outer), _places(inner)), around)

    return visit(stmt, ()), tuple(moved)


def _is_small(buffer: Buffer) -> bool:
    known = [n.value for n in buffer.shape if isinstance(n, Const)]
    return len(known) == len(buffer.shape) and prod(map(int, known)) * dtypes.info(buffer.dtype).bytes <= _MOST


def _extents(loops: Collection[For]) -> Iterator[Expr]:
    return (binary("sub", loop.upper, loop.lower) for loop in loops)


def _places(loops: Collection[For]) -> tuple[Expr, ...]:
    return tuple(binary("sub", loop.var, loop.lower) for loop in loops)


def _placed(body: Stmt, name: str, buffer: Buffer, outer: tuple[Expr, ...], inner: tuple[Expr, ...]) -> Stmt:
    """A body over an array of more dimensions, at a place in each of these."""

    def at(index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return (*outer, *index, *inner)

    def load(node: Expr) -> Expr | None:
        return Load(buffer, at(node.index)) if isinstance(node, Load) and node.buffer.name == name else None

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, Store | AtomicUpdate) and s.buffer.name == name:
            return replace(s, buffer=buffer, index=at(s.index))
        return map_children(s, visit)

    return visit(map_exprs(body, lambda e: rewrite(e, load)))
