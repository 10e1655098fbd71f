"""How often statements run: inside of loops and conditions that depend on outer loops, by the values of those."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Expr, Var, substitute, variables
from tensorlang.ir.overflow import exact_value
from tensorlang.ir.stmt import For, If, Let, Seq, Stmt, Store, walk

_POINTS = 256
"""Values of outer loops that are looked at: all of them where there are no more, else some that are spread evenly."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition around statements, which run where it holds, or where it does not."""

    value: Expr
    holds: bool = True


Around: TypeAlias = For | Let | Condition


def tuple_stores(stmt: Stmt) -> tuple[Store, ...]:
    """The stores of a tuple, which has names for its values until all are computed, with the values; () elsewhere."""
    values: dict[str, Expr] = {}
    while isinstance(stmt, Let):
        values[stmt.var.name] = substitute(stmt.value, values)
        stmt = stmt.body
    stores = stmt.body if isinstance(stmt, Seq) else ()
    found = [
        replace(store, value=values[store.value.name])
        for store in stores
        if isinstance(store, Store) and isinstance(store.value, Var) and store.value.name in values
    ]
    return tuple(found) if len(found) == len(stores) else ()


def trips(loop: For, values: Mapping[str, int]) -> int | None:
    """How often a loop runs, where outer variables have some values; None where that is not known."""
    lower, upper = exact_value(loop.lower, values), exact_value(loop.upper, values)
    return None if lower is None or upper is None else max(0, upper - lower)


def wanted_by(stmts: Iterable[Stmt], around: Iterable[Around] = ()) -> frozenset[str]:
    """The variables that bounds and conditions are made of."""
    found: set[str] = set()
    for one in (*around, *(inner for stmt in stmts for inner in walk(stmt))):
        match one:
            case For(lower=lower, upper=upper):
                found |= variables(lower) | variables(upper)
            case If(cond=value) | Let(value=value) | Condition(value=value):
                found |= variables(value)
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs of some statements: values of the variables that are `wanted` further in, with how many runs have them.

    What is not known counts as a loop that runs once, and as a condition that holds.
    """

    points: tuple[tuple[Mapping[str, int], float], ...]
    wanted: frozenset[str]

    @classmethod
    def of(cls, sizes: Mapping[str, int], wanted: frozenset[str]) -> Runs:
        """One run, where sizes have some values."""
        return cls(((dict(sizes), 1.0),), wanted)

    @property
    def count(self) -> float:
        """How many there are."""
        return sum(weight for _, weight in self.points)

    def inside(self, around: Around) -> Runs:
        """The runs of what is inside of a loop or a condition, or behind a value that has a name."""
        match around:
            case For():
                return self._iterated(around)
            case Let(var=var, value=value):
                known = [(values, exact_value(value, values), weight) for values, weight in self.points]
                return self._with((v if n is None else {**v, var.name: n}, weight) for v, n, weight in known)
            case Condition(value=value, holds=holds):
                asked = [(values, exact_value(value, values), weight) for values, weight in self.points]
                return self._with((v, w) for v, found, w in asked if (found is None or bool(found)) == holds)

    def _iterated(self, loop: For) -> Runs:
        most = max(1, _POINTS // max(1, len(self.points)))
        points = list[tuple[Mapping[str, int], float]]()
        for values, weight in self.points:
            count, lower = trips(loop, values), exact_value(loop.lower, values)
            if count is None or lower is None or loop.var.name not in self.wanted:
                points.append((values, weight * (1 if count is None else count)))
                continue
            few = min(count, most)
            places = (lower + (2 * n + 1) * count // (2 * few) for n in range(few))
            points += [({**values, loop.var.name: place}, weight * count / few) for place in places]
        return self._with(points)

    def _with(self, points: Iterable[tuple[Mapping[str, int], float]]) -> Runs:
        return Runs(tuple(point for point in points if point[1] > 0), self.wanted)
