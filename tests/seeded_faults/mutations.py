"""What a wrong pass might do to a statement: each kind of fault, at one place of a body at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

from tensorlang.ir.expr import Var, binary
from tensorlang.ir.loops import with_value
from tensorlang.ir.stmt import (
    INDEX,
    Allocate,
    AsyncCommit,
    AsyncWait,
    Barrier,
    For,
    If,
    Leaf,
    LoopKind,
    MachineCommit,
    MachineWait,
    Mark,
    Seq,
    Stmt,
    children,
    map_children,
    walk,
)

Rule = Callable[[Stmt], Stmt | None]
"""A statement with the fault; None where it has no place for it."""

_WAITS = (Barrier, AsyncCommit, AsyncWait, MachineCommit, MachineWait)


def runs_something(stmt: Stmt) -> bool:
    """Whether leaves in a statement run instances."""
    return any(isinstance(s, Leaf) and s.runs for s in walk(stmt))


def lost_last_iteration(stmt: Stmt) -> Stmt | None:
    if isinstance(stmt, For) and runs_something(stmt):
        return replace(stmt, upper=binary("sub", stmt.upper, 1))
    return None


def lost_first_iteration(stmt: Stmt) -> Stmt | None:
    if isinstance(stmt, For) and runs_something(stmt):
        return replace(stmt, lower=binary("add", stmt.lower, 1))
    return None


def swapped_bounds(stmt: Stmt) -> Stmt | None:
    if isinstance(stmt, For) and runs_something(stmt):
        return replace(stmt, lower=stmt.upper, upper=stmt.lower)
    return None


def wrong_stride(stmt: Stmt) -> Stmt | None:
    if isinstance(stmt, For) and runs_something(stmt):
        return replace(stmt, body=with_value(stmt.body, stmt.var, binary("mul", stmt.var, 2)))
    return None


def run_backwards(stmt: Stmt) -> Stmt | None:
    """The same iterations, the last one first."""
    if isinstance(stmt, For) and runs_something(stmt) and stmt.kind is LoopKind.SERIAL:
        value = binary("sub", binary("add", stmt.lower, stmt.upper), binary("add", Var(stmt.var.name, INDEX), 1))
        return replace(stmt, body=with_value(stmt.body, stmt.var, value))
    return None


def wrongly_parallel(stmt: Stmt) -> Stmt | None:
    if isinstance(stmt, For) and stmt.kind is LoopKind.SERIAL and runs_something(stmt):
        return replace(stmt, kind=LoopKind.PARALLEL)
    return None


def made_anew(stmt: Stmt) -> Stmt | None:
    """An array that does not outlive an iteration, or a statement of several."""
    if not isinstance(stmt, Allocate) or not runs_something(stmt):
        return None
    match stmt.body:
        case For(kind=LoopKind.SERIAL) as loop:
            return replace(loop, body=replace(stmt, body=loop.body))
        case Seq(parts):
            return Seq(tuple(replace(stmt, body=part) for part in parts))
    return None


def dropped_guard(stmt: Stmt) -> Stmt | None:
    if isinstance(stmt, If) and not stmt.is_guard and runs_something(stmt):
        return stmt.then
    return None


def turned_guard(stmt: Stmt) -> Stmt | None:
    if isinstance(stmt, If) and not stmt.is_guard and runs_something(stmt):
        return replace(stmt, cond=~stmt.cond)
    return None


def doubled_instance(stmt: Stmt) -> Stmt | None:
    if isinstance(stmt, Leaf) and stmt.runs and not isinstance(stmt, Mark):
        return Seq((stmt, stmt))
    return None


def lost_instance(stmt: Stmt) -> Stmt | None:
    return Seq(()) if isinstance(stmt, Leaf) and stmt.runs and not isinstance(stmt, _WAITS) else None


def missing_wait(stmt: Stmt) -> Stmt | None:
    """No barrier, group or wait."""
    return Seq(()) if isinstance(stmt, _WAITS) and stmt.runs else None


def swapped_statements(stmt: Stmt) -> Stmt | None:
    if isinstance(stmt, Seq):
        kept = [k for k, s in enumerate(stmt.body) if runs_something(s)]
        if len(kept) > 1:
            body = list(stmt.body)
            body[kept[0]], body[kept[1]] = body[kept[1]], body[kept[0]]
            return Seq(tuple(body))
    return None


MUTATIONS: dict[str, Rule] = {
    "a lost last iteration": lost_last_iteration,
    "a lost first iteration": lost_first_iteration,
    "swapped bounds": swapped_bounds,
    "a wrong stride": wrong_stride,
    "a loop run backwards": run_backwards,
    "a loop wrongly parallel": wrongly_parallel,
    "a dropped guard": dropped_guard,
    "a guard turned round": turned_guard,
    "a doubled instance": doubled_instance,
    "a lost instance": lost_instance,
    "a missing barrier or wait": missing_wait,
    "two statements swapped": swapped_statements,
    "an array made anew": made_anew,
}


def mutants(stmt: Stmt, rule: Rule) -> Iterator[Stmt]:
    """Yield the statement with a fault at each of its places, outermost first."""
    found = rule(stmt)
    if found is not None:
        yield found
    for k, part in enumerate(children(stmt)):
        for mutant in mutants(part, rule):
            yield _with_child(stmt, k, mutant)


def _with_child(stmt: Stmt, number: int, child: Stmt) -> Stmt:
    """A statement with one of its direct sub-statements replaced."""
    numbers = count()
    return map_children(stmt, lambda s: child if next(numbers) == number else s)
