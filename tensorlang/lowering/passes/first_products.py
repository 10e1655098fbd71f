"""Machine code that can store in place of adding does so first, and what it would have added to is not set before.

Where the next thing that happens to tiles after their reset is the first iteration of loops that add to them, the reset
goes, and the code is told in which iteration it is: whether it accumulates is an expression of loop variables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Const, Expr, Var, binary, cast, same, substitute, substitution, variables, walk
from tensorlang.ir.instance import map_runs
from tensorlang.ir.loops import with_body
from tensorlang.ir.machine import ACCUMULATES
from tensorlang.ir.simplify import proves
from tensorlang.ir.stmt import (
    Allocate,
    CallMachine,
    For,
    If,
    Kernel,
    LoopKind,
    MachineCode,
    Seq,
    Stmt,
    children,
    map_children,
    map_exprs,
    stmt_exprs,
)
from tensorlang.ir.stmt import walk as statements
from tensorlang.lowering.device.arrays import uses


def first_products(kernel: Kernel) -> Kernel:
    """Return the kernel with the first products stored where nothing else happens between a reset and them."""
    return with_body(kernel, _visit(kernel.body))


def _visit(stmt: Stmt) -> Stmt:
    stmt = map_children(stmt, _visit)
    if not isinstance(stmt, Seq):
        return stmt
    body = list(stmt.body)
    for start in [s for s in body if _only_call(s) is not None]:
        at = next(k for k, s in enumerate(body) if s is start)
        array = _only_array(start)
        then = next((k for k in range(at + 1, len(body)) if uses(body[k], array)), None)
        merged = None if then is None else _merged(start, body[then], array)
        if then is not None and merged is not None:
            body[then] = merged
            del body[at]
    return Seq(tuple(body))


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of machine code, with the loops and the conditions around it, in order."""

    call: CallMachine
    loops: tuple[For, ...]
    conditions: tuple[Expr, ...]


def _only_call(stmt: Stmt) -> _Call | None:
    """The reset that a nest of loops runs, and nothing else."""
    loops, conditions = list[For](), list[Expr]()
    while not isinstance(stmt, CallMachine):
        match stmt:
            case For():
                loops.append(stmt)
                stmt = stmt.body
            case If(orelse=None):
                conditions.append(stmt.cond)
                stmt = stmt.then
            case _:
                return None
    reset = stmt.code.name.endswith(".reset") and len(stmt.views) == 1
    return _Call(stmt, tuple(loops), tuple(conditions)) if reset else None


def _only_array(stmt: Stmt) -> str:
    return next(s.views[0].buffer.name for s in statements(stmt) if isinstance(s, CallMachine))


def _path(stmt: Stmt, array: str) -> _Call | None:
    """The one call in a statement that uses an array, if nothing else there does."""
    loops, conditions = list[For](), list[Expr]()
    while not isinstance(stmt, CallMachine):
        match stmt:
            case For():
                loops.append(stmt)
            case If(orelse=None):
                conditions.append(stmt.cond)
            case Seq() | Allocate():
                pass
            case _:
                return None
        inside = [child for child in children(stmt) if uses(child, array)]
        if len(inside) != 1:
            return None
        stmt = inside[0]
    return _Call(stmt, tuple(loops), tuple(conditions))


def _merged(start: Stmt, then: Stmt, array: str) -> Stmt | None:
    """The statement after a reset with the reset in the first call that adds; None where it may not be the next."""
    reset, add = _only_call(start), _path(then, array)
    if reset is None or add is None or not _belong(reset.call.code, add.call.code) or add.call.accumulates is not None:
        return None
    into = next(v for v in add.call.views if v.buffer.name == array)
    named = {name for i in into.index for name in variables(i)}
    tiles = [loop for loop in add.loops if loop.var.name in named or loop.kind is LoopKind.BOUND]
    steps = [loop for loop in add.loops if loop not in tiles]
    renamed = _matched(reset.loops, tiles)
    if renamed is None or not all(proves(binary("lt", loop.lower, loop.upper), {}) for loop in steps):
        return None
    (out,) = reset.call.views
    moved = [*map(substitution(renamed), (*out.index, *reset.conditions))]
    if len(moved) != len(into.index) + len(add.conditions) or not all(map(same, moved, (*into.index, *add.conditions))):
        return None
    first = _joined("and", [binary("eq", s.var, s.lower) for s in steps], True)
    later = _joined("or", [binary("ne", s.var, s.lower) for s in steps], False)
    cleared = map_exprs(reset.call.meaning, substitution(renamed))
    meaning = Seq((If(first, cleared) if steps else cleared, add.call.meaning))
    flag = cast(later, ACCUMULATES.dtype) if steps else Const(0, ACCUMULATES.dtype)
    moved_runs = map_runs(reset.call.runs, substitution(renamed))
    begun = tuple(replace(r, conditions=(*r.conditions, *((first,) if steps else ())), moved=True) for r in moved_runs)
    runs = (*begun, *add.call.runs)
    return _replaced(then, add.call, replace(add.call, meaning=meaning, accumulates=flag, runs=runs))


def _joined(word: str, tests: Sequence[Expr], none: bool) -> Expr:
    return reduce(partial(binary, word), tests[1:], tests[0]) if tests else Const(none, "bool")


def _belong(reset: MachineCode, add: MachineCode) -> bool:
    """Whether two codes are of one intrinsic, whose products may be stored as well as added."""
    alike = reset.name.removesuffix(".reset") == add.name.removesuffix(".update") and reset.source == add.source
    return alike and any(
        isinstance(node, Var) and node.name == ACCUMULATES.name for e in stmt_exprs(add.body) for node in walk(e)
    )


def _matched(own: Sequence[For], others: Sequence[For]) -> Mapping[str, Expr] | None:
    """The variables of loops by those of others, if the loops are the same one by one."""
    renamed: dict[str, Expr] = {}
    if len(own) != len(others):
        return None
    for a, b in zip(own, others, strict=True):
        bounds = (substitute(a.lower, renamed), substitute(a.upper, renamed))
        if a.thread != b.thread or not all(map(same, bounds, (b.lower, b.upper))):
            return None
        renamed[a.var.name] = b.var
    return renamed


def _replaced(stmt: Stmt, old: Stmt, new: Stmt) -> Stmt:
    return new if stmt is old else map_children(stmt, lambda s: _replaced(s, old, new))
