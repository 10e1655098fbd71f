"""Leaves with the instances that they run (ir.instance)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count

from tensorlang.ir.expr import Expr, Var
from tensorlang.ir.instance import Instance, Runs
from tensorlang.ir.stmt import INDEX, Fail, If, Leaf, Let, Mark, Prefetch, Seq, Stmt, map_children
from tensorlang.polyhedral.statement import Statement
from tensorlang.schedule.tiles.plan import Covered


def tagged(stmt: Stmt, number: int, statement: Statement, values: Mapping[str, Expr]) -> Stmt:
    """The body of a statement with its instance, by number, at some values of the loops around."""
    return with_runs(stmt, (Instance(number, tuple([values[name] for name in statement.loops])),))


def with_runs(stmt: Stmt, runs: Runs) -> Stmt:
    """The body of a statement with the instances that it runs: every leaf is a part of them.

    Loops of its own can not tell which part of an instance is run in which of their iterations: what runs it is then
    said in front of them.
    """
    parts = count()

    def visit(s: Stmt) -> Stmt:
        match s:
            case If() | Let() | Seq():
                return map_children(s, visit)
            case Fail() | Prefetch():
                return s
        assert isinstance(s, Leaf)
        part = next(parts)
        return replace(s, runs=tuple(replace(r, part=part) for r in runs))

    if not _is_straight(stmt):
        return Seq((Mark(runs), stmt))
    return visit(stmt)


def _is_straight(stmt: Stmt) -> bool:
    """Whether a statement is leaves, in a row, named values and tests."""
    match stmt:
        case Seq():
            return all(map(_is_straight, stmt.body))
        case If():
            return stmt.is_guard and _is_straight(stmt.then) and (stmt.orelse is None or _is_straight(stmt.orelse))
        case Let():
            return _is_straight(stmt.body)
    return isinstance(stmt, Leaf | Fail | Prefetch)


def of_tile(
    covered: Sequence[Covered], statements: Sequence[Statement], values: Mapping[str, Expr], moved: bool
) -> Runs:
    """The instances that a call runs, for given values of the loops around its tile.

    `moved`: calls for the tile run all of one statement before any of another.
    """
    return tuple(_of_part(part, statements[part.statement], values, moved) for part in covered)


def _of_part(part: Covered, statement: Statement, values: Mapping[str, Expr], moved: bool) -> Instance:
    known: dict[str, Expr] = {**values, **{loop.name: Var(loop.name, INDEX) for loop in part.inner}}
    over = tuple((loop.name, loop.lower, loop.lower + loop.extent) for loop in part.inner)
    return Instance(part.statement, tuple([known[name] for name in statement.loops]), 0, over, moved=moved)
