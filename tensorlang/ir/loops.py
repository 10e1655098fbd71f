"""Questions and edits about loops that the verifier, the passes and the targets share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tensorlang.ir.affine import add, affine, is_constant
from tensorlang.ir.expr import Const, Expr, Load, Var, binary, substitution, walk
from tensorlang.ir.simplify import simplify
from tensorlang.ir.stmt import INDEX, For, Kernel, Let, LoopKind, Seq, Stmt, map_children, map_exprs

MOST_UNROLLED = "auto_unroll_max_step"
UNROLL_EXPLICIT = "unroll_explicit"
STRIDED = "parallel_stride_pattern"
"""Pragmas of a loop: the most stores that copying it may make, whether that is done here or by the compiler of the
target, and whether threads take its iterations in turn."""
REDUCE_TREE = "reduce_tree"
"""The pragma of a serial loop whose updates of one element may be combined in any order."""
THREAD_REDUCE = "thread_reduce"
"""The pragma of a loop bound to threads of a block that combine what they find: its updates meet in one element."""
BLOCKS_PER_CORE = "blocks_per_core"
"""The pragma of a loop over blocks: how many of them one multiprocessor holds at a time, at least."""
ASKED = (MOST_UNROLLED, UNROLL_EXPLICIT, STRIDED, REDUCE_TREE, BLOCKS_PER_CORE)
"""Pragmas that a loop carries to the target."""
UNROLL_FULL = "llvm_unroll_full"
"""The pragma of a loop that the compiler of the target has to copy, all iterations."""


def constant_extent(loop: For) -> int | None:
    """How many iterations a loop has, if its bounds differ by a constant."""
    return constant_difference(loop.upper, loop.lower)


def constant_difference(upper: Expr, lower: Expr) -> int | None:
    """`upper - lower`, at least 0, if it is a constant."""
    top, bottom = affine(upper), affine(lower)
    if top is not None and bottom is not None:
        form = add(top, bottom, -1)
        return max(0, form.get("", 0)) if is_constant(form) else None
    difference = simplify(upper - lower)
    return max(0, int(difference.value)) if isinstance(difference, Const) else None


def uses(expr: Expr, name: str) -> bool:
    """Whether an expression mentions a variable."""
    return any(isinstance(node, Var) and node.name == name for node in walk(expr))


def reads_memory(expr: Expr) -> bool:
    """Whether an expression loads from an array."""
    return any(isinstance(node, Load) for node in walk(expr))


def with_value(stmt: Stmt, var: Var, value: Expr) -> Stmt:
    """The statement with a variable replaced by an expression of its dtype that reads no memory."""
    return map_exprs(stmt, substitution({var.name: value}))


def iterations(loop: For, count: int) -> Stmt:
    """The first `count` iterations of a loop, one after the other."""
    if not reads_memory(loop.lower):
        return _copies(loop, loop.lower, count)
    # A lower bound that reads memory is read once, before the first iteration.
    return Let(loop.var, loop.lower, _copies(loop, loop.var, count))


def _copies(loop: For, first: Expr, count: int) -> Stmt:
    copies = [with_value(loop.body, loop.var, binary("add", first, Const(n, INDEX))) for n in range(count)]
    return copies[0] if count == 1 else Seq(tuple(copies))


def with_kind(loop: For, kind: LoopKind) -> For:
    """The loop with its iterations run in another way."""
    return replace(loop, kind=kind, thread=loop.thread if kind is LoopKind.BOUND else "")


def with_wishes(stmt: Stmt, pragmas: Sequence[tuple[str, int | str]]) -> Stmt:
    """A statement whose outermost loops have the pragmas about unrolling of the loop around them, which is gone.

    Loops that have such pragmas keep their own.
    """
    wishes = tuple(p for p in pragmas if p[0] in (MOST_UNROLLED, UNROLL_EXPLICIT))
    if not wishes:
        return stmt

    def visit(s: Stmt) -> Stmt:
        if not isinstance(s, For):
            return map_children(s, visit)
        own = {word for word, _ in s.pragmas}
        return replace(s, pragmas=(*s.pragmas, *(p for p in wishes if p[0] not in own)))

    return visit(stmt)


def with_body(kernel: Kernel, body: Stmt) -> Kernel:
    """The kernel with another body; the same one, which needs no check, with its own."""
    return kernel if body is kernel.body else replace(kernel, body=body)
