"""Which iterations of a computation touch a given element: index equations, solved for the axes.

`A[2 * y + k, c]` at the element (e, d) is the system `2 * y + k = e, c = d`. Elimination over the integers turns it
into values of some axes (`y = (e - k) // 2`), conditions (`(e - k) % 2 == 0`, and the range of `y`), and axes left
free (`k`). A quotient and a remainder by a constant become unknowns of one more equation, `u = c * quotient +
remainder`, so that reshapes are solved like everything else. What is not linear is tested: all its axes stay free.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace

from tensorlang.dataclass import dataclass
from tensorlang.ir.affine import Affine, add, scale
from tensorlang.ir.expr import Binary, Const, Expr, Var, binary, cast
from tensorlang.ir.operators import COMPARE
from tensorlang.ir.traverse import bounded
from tensorlang.te.autodiff.digits import Digits
from tensorlang.te.autodiff.space import Space
from tensorlang.te.axis import Axis, AxisKind
from tensorlang.te.operation import constant

Equation = tuple[Expr, Var]  # an index over the axes, and the variable that it equals


@dataclass(frozen=True, slots=True)
class Inverse:
    """What the equations say: `guards` must hold for an iteration to exist, and the `free` axes are left open.

    `tests` are the equations that could not be solved, which may read memory and may only be evaluated where the guards
    hold. `solved` gives the other axes, each as a form and a divisor.
    """

    space: Space
    solved: dict[str, tuple[Affine, int]]
    free: tuple[Axis, ...]
    guards: tuple[Expr, ...]
    tests: tuple[Expr, ...]

    def at(self, expr: Expr) -> Expr:
        """An expression over the axes, over known variables and free axes instead: equal wherever the guards hold."""
        return self.space.tidy_reads(self._at(expr))

    @bounded
    def _at(self, expr: Expr) -> Expr:
        if isinstance(expr, Binary) and expr.op in COMPARE:
            a, b = self.space.form(expr.a), self.space.form(expr.b)
            if a is not None and b is not None:
                left, right = self.space.sides(_substituted(add(a, b, -1), self.solved)[0])
                return binary(expr.op, left, right)
        form = self.space.form(expr)
        if form is not None:
            over, divisor = _substituted(form, self.solved)
            return cast(self.space.expr(over) // divisor, expr.dtype)
        return expr.with_children(tuple(self._at(child) for child in expr.children()))


def invert(space: Space, axes: Sequence[Axis], equations: Sequence[Equation], fresh: Callable[[str], str]) -> Inverse:
    """Solve equations for the axes; `space` holds the ranges of the known variables and gets those of the axes.

    `fresh` makes a name that is not taken yet.
    """
    for axis in axes:
        space.declare(axis.name, axis.lower, axis.extent)
    system = _System(space, fresh, [axis.name for axis in axes])
    tests, division = [], Digits(system.new_digit).divide
    for index, known in equations:
        form = space.form(index, division)
        if form is None:
            tests.append(binary("eq", index, known))
        else:
            system.rows.append(add(form, {known.name: 1}, -1))
    guards = system.solve()
    solved = Inverse(space, system.solved, system.free(), guards, ())
    return replace(solved, tests=tuple(solved.at(test) for test in tests))


@dataclass(slots=True)
class _System:
    """Linear equations `row = 0` over unknowns, and the unknowns solved so far: `unknown = form / divisor`."""

    space: Space
    fresh: Callable[[str], str]
    unknowns: list[str]
    rows: list[Affine] = field(default_factory=list)
    solved: dict[str, tuple[Affine, int]] = field(default_factory=dict)

    def new_digit(self, whole: Affine, divisor: int) -> tuple[str, str]:
        """New unknowns for the quotient and the remainder of a form by a constant."""
        quotient, rest = self.fresh("q"), self.fresh("m")
        self.space.bounds[quotient] = self.space.quotients(whole, divisor)
        self.space.bounds[rest] = {}, {"": divisor - 1}
        self.unknowns += [quotient, rest]
        self.rows.append(add(whole, {quotient: divisor, rest: 1}, -1))
        return quotient, rest

    def solve(self) -> tuple[Expr, ...]:
        """Eliminate until no equation holds an unknown; return the conditions that are left."""
        self._split()
        while pivot := self._pivot():
            self._eliminate(*pivot)
            self._split()
        guards = [self._holds(row) for row in self.rows]
        for name in self.unknowns:
            if name in self.solved:
                guards += self._range(name)
        kept = [g for g in guards if self.space.decide(g) is not True]
        return tuple({str(g): g for g in kept}.values())

    def _split(self) -> None:
        """Solve `4 * i + j = e` for an index j below 4: it is a remainder of e, and `i` the quotient."""
        while found := next((pair for row in self.rows if (pair := self._digit(row))), None):
            row, name, step = found
            self.rows.remove(row)
            sign, low = row[name], self.space.bounds[name][0]
            known = {n: c for n, c in row.items() if n not in self.unknowns}
            quotient, rest = self.space.divide(add(scale(known, -sign), low, -1), step)
            others = {n: c // step for n, c in row.items() if n in self.unknowns and n != name}
            self.rows += [add({name: 1, rest: -1}, low, -1), add(others, {quotient: -sign})]

    def _digit(self, row: Affine) -> tuple[Affine, str, int] | None:
        """An unknown of a row that is a remainder: the steps of all others are multiples of more than its length."""
        unknown = [name for name in row if name in self.unknowns]
        for name in unknown:
            step = math.gcd(*(row[other] for other in unknown if other != name))
            length = self.space.length(name)
            if abs(row[name]) == 1 and step > 1 and length is not None and length <= step:
                return row, name, step
        return None

    def _pivot(self) -> tuple[Affine, str] | None:
        """The equation and the unknown to solve for next: the longest range saves most; no division, if it is equal."""
        found = [(row, name) for row in self.rows for name in row if name in self.unknowns]
        return max(found, key=self._gain, default=None)

    def _gain(self, pair: tuple[Affine, str]) -> tuple[float, bool]:
        row, name = pair
        length = self.space.length(name)
        return math.inf if length is None else length, abs(row[name]) == 1

    def _eliminate(self, row: Affine, name: str) -> None:
        self.rows.remove(row)
        if row[name] < 0:
            row = scale(row, -1)
        divisor, rest = row[name], {n: -c for n, c in row.items() if n != name}
        pivot = {name: _reduced(rest, divisor)}
        self.rows = [_reduced(_substituted(other, pivot)[0], 0)[0] for other in self.rows]
        for old, (form, own) in self.solved.items():
            over, factor = _substituted(form, pivot)
            self.solved[old] = _reduced(over, own * factor)
        self.solved |= pivot

    def _holds(self, row: Affine) -> Expr:
        """The condition `row = 0`."""
        left, right = self.space.sides(row)
        return binary("eq", right, left) if isinstance(left, Const) else binary("eq", left, right)

    def _range(self, name: str) -> list[Expr]:
        """What a solved unknown needs: to be an integer, inside its range. What is known to hold is left out."""
        form, divisor = self.solved[name]
        low, high = self.space.bounds[name]
        expr, guards = self.space.expr(form), []
        if divisor > 1:
            guards.append(binary("eq", expr % divisor, constant(0)))
        if not self.space.nonnegative(add(form, low, -divisor)):
            guards.append(binary("ge", expr, self.space.expr(scale(low, divisor))))
        limit = add(scale(high, divisor), {"": divisor})
        if not self.space.nonnegative(add(add(limit, {"": -1}), form, -1)):
            guards.append(binary("lt", expr, self.space.expr(limit)))
        return guards

    def free(self) -> tuple[Axis, ...]:
        """The unknowns that no equation determines."""
        expr = self.space.expr
        found = []
        for name in self.unknowns:
            if name not in self.solved:
                low, high = self.space.bounds[name]
                extent = expr(add(add(high, low, -1), {"": 1}))
                found.append(Axis(name, extent, AxisKind.REDUCE, expr(low)))
        return tuple(found)


def _substituted(form: Affine, values: Mapping[str, tuple[Affine, int]]) -> tuple[Affine, int]:
    """A form and a divisor: a form with unknowns replaced by their values."""
    divisor = math.lcm(*(values[name][1] for name in form if name in values))
    total: Affine = {}
    for name, count in form.items():
        over, own = values.get(name, ({name: 1}, 1))
        total = add(total, over, count * divisor // own)
    return _reduced(total, divisor)


def _reduced(form: Affine, divisor: int) -> tuple[Affine, int]:
    """A form and its divisor without common factors; with divisor 0, the form alone (of an equation)."""
    common = math.gcd(divisor, *form.values()) or 1
    return {n: c // common for n, c in form.items()}, divisor // common
