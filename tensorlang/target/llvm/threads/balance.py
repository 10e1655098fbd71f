"""How the iterations of parallel loops are shared out: evenly ahead, or to whoever is free.

Threads take shares as they go where the work of an iteration depends on its number, as in a triangle or over rows of
a sparse matrix. Everywhere else the shares are fixed, and a thread finds in its cache what it worked on last time.
Partial tiles at the border count as even. Sizes that are not known yet are taken to be large.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import median

from tensorlang.ir.expr import Binary, Cast, Const, Expr, Load, Var
from tensorlang.ir.expr import walk as nodes
from tensorlang.ir.loops import STRIDED
from tensorlang.ir.operators import AT_RUN_TIME
from tensorlang.ir.stmt import Allocate, For, If, Kernel, Let, LoopKind, Seq, Stmt, Store, children, map_children, walk
from tensorlang.target.llvm.threads.shares import nest

DYNAMIC = "dynamic_shares"
"""The pragma of a parallel loop whose threads take shares as they go."""
_LARGE = 1000
_SAMPLES = 16
_MOST_ODD = 4
"""Samples of a loop that may have another amount of work than most, by more than a quarter."""

_Values = Mapping[str, int | None]


def with_shares(kernel: Kernel) -> Kernel:
    """The kernel with uneven parallel loops marked DYNAMIC."""
    if not any(isinstance(s, For) and s.kind is LoopKind.PARALLEL for s in walk(kernel.body)):
        return kernel
    sizes = {v.name: _LARGE for v in kernel.sizes}
    return replace(kernel, body=_marked(kernel.body, sizes))


def iterations(loop: For, sizes: Mapping[str, int]) -> int | None:
    """How many iterations the nest that begins with a parallel loop has, if its sizes tell."""
    return _value(nest(loop).count, sizes)


def work(stmt: Stmt, values: _Values) -> int | None:
    """About how many statements a statement runs, None where data decides; loops are taken at their middle."""
    match stmt:
        case Store():
            return 1
        case For(var, lower, upper, _, body):
            first, last = _value(lower, values), _value(upper, values)
            if first is None or last is None:
                return None
            each = work(body, {**values, var.name: (first + last) // 2}) if first < last else 0
            return None if each is None else (last - first) * each if first < last else 0
        case Let(var, value, body):
            return work(body, {**values, var.name: _value(value, values)})
        case Allocate():
            return work(stmt.body, values)
        case If(cond, then, orelse):
            taken = orelse if _value(cond, values) == 0 else then
            return 0 if taken is None else work(taken, values)
        case Seq(body):
            parts = [work(part, values) for part in body]
            return None if None in parts else sum(p for p in parts if p)
        case _:
            return 1


def _marked(stmt: Stmt, values: _Values) -> Stmt:
    match stmt:
        case For(kind=LoopKind.PARALLEL):
            even = (STRIDED, 1) in stmt.pragmas or all(_is_even(stmt, loop, values) for loop in nest(stmt).loops)
            return stmt if even else replace(stmt, pragmas=(*stmt.pragmas, (DYNAMIC, 1)))
        case For():
            inside = {**values, stmt.var.name: _middle(stmt, values)}
        case Let():
            inside = {**values, stmt.var.name: _value(stmt.value, values)}
        case _:
            inside = dict(values)
    return map_children(stmt, lambda child: _marked(child, inside))


def _is_even(outer: For, loop: For, values: _Values) -> bool:
    """Whether iterations of one loop of a nest do about as much as each other."""
    if not _depends(loop.body, {loop.var.name}):
        return True
    first, last = _value(loop.lower, values), _value(loop.upper, values)
    if first is None or last is None or last <= first:
        return first is not None and last is not None
    points = [first + (2 * k + 1) * (last - first) // (2 * _SAMPLES) for k in range(_SAMPLES)]
    inner = {**values, **{other.var.name: _middle(other, values) for other in nest(outer).loops}}
    sampled = {at: work(loop.body, {**inner, loop.var.name: at}) for at in set(points)}
    amounts = [sampled[at] for at in points]
    known = [a for a in amounts if a is not None]
    if len(known) < len(amounts):
        return False
    usual = median(known)
    return sum(4 * abs(a - usual) > usual for a in known) <= _MOST_ODD


def _depends(stmt: Stmt, names: set[str]) -> bool:
    """Whether how often something runs may depend on data or on one of the variables `names`."""
    match stmt:
        case For(var, lower, upper, _, body):
            return _uses(lower, names) or _uses(upper, names) or _depends(body, names)
        case If(cond) if _uses(cond, names):
            return True
        case Let(var, value, body):
            return _depends(body, names | {var.name} if _uses(value, names) else names)
        case _:
            return any(_depends(child, names) for child in children(stmt))


def _uses(expr: Expr, names: set[str]) -> bool:
    return any(isinstance(n, Load) or (isinstance(n, Var) and n.name in names) for n in nodes(expr))


def _middle(loop: For, values: _Values) -> int | None:
    first, last = _value(loop.lower, values), _value(loop.upper, values)
    return None if first is None or last is None else (first + last) // 2


def _value(expr: Expr, values: _Values) -> int | None:
    """The value of an integer expression, None if it depends on data or is a float."""
    match expr:
        case Const(int(value)):
            return int(value)
        case Var():
            return values.get(expr.name)
        case Cast():
            return _value(expr.value, values)
        case Binary() if expr.op in AT_RUN_TIME:
            a, b = _value(expr.a, values), _value(expr.b, values)
            return None if a is None or b is None else int(AT_RUN_TIME[expr.op](a, b))
        case _:
            return None
