"""Full and partial tiles: isolate leaves constant bounds where whole tiles fit, and exact remainders."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tensorlang
from tensorlang import te
from tensorlang.ir.expr import Const
from tensorlang.ir.stmt import For, Stmt, walk
from tensorlang.schedule.derive import derive
from tests.programs import Case, chain, matmul

n, m = te.var("n"), te.var("m")


def loops(stmt: Stmt, axis: str) -> list[For]:
    return [s for s in walk(stmt) if isinstance(s, For) and s.axis == axis]


def nests(stmt: Stmt, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The loop nests of a kernel, each as `axis:extent` from the outside, `?` for an extent that varies."""
    inner = [s for s in walk(stmt) if isinstance(s, For) and s is not stmt]
    if isinstance(stmt, For):
        fixed = isinstance(stmt.upper, Const) and isinstance(stmt.lower, Const)
        extent = str(int(stmt.upper.value) - int(stmt.lower.value)) if fixed else "?"  # type: ignore[attr-defined]
        path = (*path, f"{stmt.axis}:{extent}")
        if not inner:
            yield path
    from tensorlang.ir.stmt import children

    for child in children(stmt):
        yield from nests(child, path)


def kernel(case: Case) -> Stmt:
    return tensorlang.lower(case.s, case.args).kernel.body


def tiled(rows: int | te.Var, columns: int | te.Var, depth: int | te.Var = 8, tail: str = "peel") -> Stmt:
    case = matmul(rows, columns, depth)
    i_o, j_o, i_i, j_i = case.s["C"].tile("i", "j", 4, 8, tail=tail)
    case.s["C"].reorder(i_o, j_o, "k", i_i, j_i)
    return kernel(case)
