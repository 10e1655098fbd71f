"""Pairs of instances that code runs in another order than the schedule: exact, by isl, where sums do not tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from tensorlang.ir.expr import Const, Expr, substitute
from tensorlang.ir.stmt import INDEX
from tensorlang.lowering.read_back.reader import unknowns
from tensorlang.lowering.read_back.runs import Run
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import Namer, condition_text, index_text
from tensorlang.polyhedral.statement import Access, Scop, Statement


def are_reversed(first: Run, then: Run, common: frozenset[str], stepped: str, scop: Scop, sign: str = "<") -> bool:
    """Whether instances of one run may come first in the code, and later in the schedule; or, by `!=`, at another time.

    They are at equal values of the loops `common`, and the second at a later iteration of the loop `stepped`. Where one
    of them was moved, those count that meet in an element. What isl cannot see counts as reversed.
    """
    namer = Namer(scop.sizes | unknowns((first, then)))
    left = {name: f"c{k}" if name in common else f"a{k}" for k, name in enumerate(first.loops)}
    right = {name: left[name] if name in common else f"b{k}" for k, name in enumerate(then.loops)}
    where = [f"{left[stepped]} < {right[stepped]}"] if stepped else []
    for run, names in ((first, left), (then, right)):
        for condition in run.conditions:
            text = condition_text(condition, names, namer)
            if text is None:
                return True
            where.append(text)
    dims = ", ".join(dict.fromkeys((*left.values(), *right.values())))
    for case in _cases(
        _when(first, scop, left, namer), _when(then, scop, right, namer), _free(first, then, scop), sign
    ):
        if case is None:
            return True
        meeting = _meeting(first, then, scop, left, right, namer) if first.moved or then.moved else "0 = 0"
        found = isl.make_set(f"{namer.prefix()}{{ [{dims}] : {' and '.join([*where, case, f'({meeting})'])} }}")
        context = namer.context()
        if context:
            found = found.intersect_params(isl.make_set(f"{namer.prefix()}{{ : {context} }}"))
        if not found.is_empty():
            return True
    return False


def _when(run: Run, scop: Scop, names: Mapping[str, str], namer: Namer) -> list[str | None]:
    """The time of a run's instances in the schedule."""
    statement = scop.statements[run.statement]
    values: dict[str, Expr] = dict(zip(statement.loops, run.values, strict=True))
    parts = (Const(p, INDEX) if isinstance(p, int) else values[p] for p in statement.time)
    return [index_text(part, dict(names), namer) for part in parts]


def _free(first: Run, then: Run, scop: Scop) -> list[bool]:
    """Which entries of times prove no order."""
    pairs = zip(scop.statements[first.statement].time, scop.statements[then.statement].time, strict=False)
    return [a in scop.unordered and b in scop.unordered for a, b in pairs]


def _cases(a: Sequence[str | None], b: Sequence[str | None], free: Sequence[bool], sign: str) -> Iterator[str | None]:
    """Conditions, by the entry that tells, under which the second time is first; None where isl sees none."""
    equal: list[str] = []
    for x, y, is_free in zip(a, b, free, strict=False):
        if x == y:
            continue
        if x is None or y is None:
            yield None
            return
        if not is_free:
            yield " and ".join([*equal, f"{y} {sign} {x}"])
        equal.append(f"{x} = {y}")


def _meeting(first: Run, then: Run, scop: Scop, left: Mapping[str, str], right: Mapping[str, str], namer: Namer) -> str:
    """The condition that two instances touch one element, which one of them writes."""
    a, b = scop.statements[first.statement], scop.statements[then.statement]
    pairs = [*product(a.writes, (*b.writes, *b.reads)), *product(a.reads, b.writes)]
    places = [
        _same_place(_place(x, a, first, left, namer), _place(y, b, then, right, namer))
        for x, y in pairs
        if x.array == y.array
    ]
    return " or ".join(f"({place})" for place in places) or "0 = 1"


def _place(access: Access, statement: Statement, run: Run, names: Mapping[str, str], namer: Namer) -> list[str | None]:
    """The element of an access; None for what may be any."""
    values: dict[str, Expr] = dict(zip(statement.loops, run.values, strict=True))
    index = (*(values[name] for name in access.version), *(substitute(i, values) for i in access.index or ()))
    return [index_text(i, dict(names), namer) for i in index]


def _same_place(a: Sequence[str | None], b: Sequence[str | None]) -> str:
    pairs = [(x, y) for x, y in zip(a, b, strict=False) if x is not None and y is not None]
    return " and ".join(f"{x} = {y}" for x, y in pairs) or "0 = 0"
