"""Parallel loops over fused axes become nests again, so that their bodies divide nothing.

Targets share out a nest of parallel loops as one range: `fuse` and `parallel` cost no more than `parallel` twice.
"""

from __future__ import annotations

from dataclasses import replace

from tensorlang.ir.expr import Binary, Const, Expr, Var, binary, walk
from tensorlang.ir.loops import STRIDED, constant_extent, with_body, with_value
from tensorlang.ir.simplify import simplify_stmt
from tensorlang.ir.stmt import INDEX, For, Kernel, LoopKind, Stmt, map_children, stmt_exprs

_ZERO = Const(0, INDEX)


def unfuse(kernel: Kernel) -> Kernel:
    """Split parallel loops from zero by the constants that their bodies divide the loop variable by.

    A constant counts if it divides the extent. Loops whose iterations threads take in turn stay as they are.
    """

    def visit(stmt: Stmt) -> Stmt:
        if isinstance(stmt, For) and stmt.kind is LoopKind.PARALLEL and (STRIDED, 1) not in stmt.pragmas:
            stmt = _nest(stmt)
        return map_children(stmt, visit)

    return with_body(kernel, visit(kernel.body))


def _nest(loop: For) -> For:
    extent = constant_extent(loop)
    if extent is None or loop.lower != _ZERO:
        return loop
    inner = max((d for d in _divisors(loop) if 1 < d < extent and extent % d == 0), default=0)
    if not inner:
        return loop
    outside, inside = Var(f"{loop.var.name}.o", INDEX), Var(f"{loop.var.name}.i", INDEX)
    fused = binary("add", binary("mul", outside, Const(inner, INDEX)), inside)
    ranges = {outside.name: (0, extent // inner - 1), inside.name: (0, inner - 1)}
    body = simplify_stmt(with_value(loop.body, loop.var, fused), ranges)
    rest = _nest(For(inside, _ZERO, Const(inner, INDEX), LoopKind.PARALLEL, body, loop.axis))
    return replace(loop, var=outside, upper=Const(extent // inner, INDEX), body=rest)


def _divisors(loop: For) -> set[int]:
    """The constants that a loop's variable is divided by, or taken modulo, in its body."""
    return {_divisor(node, loop.var) for expr in stmt_exprs(loop.body) for node in walk(expr)} - {0}


def _divisor(node: Expr, var: Var) -> int:
    match node:
        case Binary("floordiv" | "floormod", dividend, Const(value)) if dividend == var:
            return int(value)
        case _:
            return 0
