"""Which iterations of a computation touch a given element: index equations, solved for the axes.

`A[2 * y + k, c]` at the element (e, d) is the system `2 * y + k = e, c = d`. Elimination over the integers turns it
into values of some axes (`y = (e - k) // 2`), conditions (`(e - k) % 2 == 0`, and the range of `y`), and axes left
free (`k`). A quotient and a remainder by a constant become unknowns of one more equation, `u = c * quotient +
remainder`, so that reshapes are solved like everything else. What is not linear is tested: all its axes stay free.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tensorlang.ir.affine import Affine, add, scale
from tensorlang.ir.expr import Expr, Var, binary, substitute
from tensorlang.te.autodiff.digits import Digits
from tensorlang.te.autodiff.space import Space
from tensorlang.te.axis import Axis, AxisKind
from tensorlang.te.operation import constant

Equation = tuple[Expr, Var]  # an index over the axes, and the variable that it equals


@dataclass(frozen=True, slots=True)
class Inverse:
    """The values of all axes, over the known variables and the free axes.

    `guards` must hold for an iteration to exist; `tests` are the equations that could not be solved, which may read
    memory and may only be evaluated where the guards hold.
    """

    values: dict[str, Expr]
    free: tuple[Axis, ...]
    guards: tuple[Expr, ...]
    tests: tuple[Expr, ...]


def invert(space: Space, axes: Sequence[Axis], equations: Sequence[Equation], fresh: Callable[[str], str]) -> Inverse:
    """Solve equations for the axes; `space` holds the ranges of the known variables and gets those of the axes.

    `fresh` makes a name that is not taken yet.
    """
    names = {axis.name: fresh(axis.name) for axis in axes}
    for axis in axes:
        space.declare(names[axis.name], axis.lower, axis.extent)
    system = _System(space, fresh, list(names.values()))
    renamed: dict[str, Expr] = {old: Var(new) for old, new in names.items()}
    tests, division = [], Digits(system.new_digit).divide
    for index, known in equations:
        expr = substitute(index, renamed)
        form = space.form(expr, division)
        if form is None:
            tests.append((expr, known))
        else:
            system.rows.append(add(form, {known.name: 1}, -1))
    guards = system.solve()
    solved = {name: system.value(name) for name in system.unknowns}
    unsolved = tuple(binary("eq", space.tidy_reads(substitute(e, solved)), known) for e, known in tests)
    return Inverse({old: solved[new] for old, new in names.items()}, system.free(), guards, unsolved)


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
        low = self.space.expr(self.space.least(whole)) // divisor
        high = self.space.expr(scale(self.space.least(scale(whole, -1)), -1)) // divisor
        self.space.declare(quotient, low, high - low + 1)
        self.space.declare(rest, constant(0), constant(divisor))
        self.unknowns += [quotient, rest]
        self.rows.append(add(whole, {quotient: divisor, rest: 1}, -1))
        return quotient, rest

    def solve(self) -> tuple[Expr, ...]:
        """Eliminate until no equation holds an unknown; return the conditions that are left."""
        while pivot := self._pivot():
            self._eliminate(*pivot)
        guards = [self._holds(row) for row in self.rows]
        for name in self.unknowns:
            if name in self.solved:
                guards += self._range(name)
        kept = [g for g in guards if self.space.decide(g) is not True]
        return tuple({str(g): g for g in kept}.values())

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
        self.rows = [_reduced(_replaced(other, name, rest, divisor), 0)[0] for other in self.rows]
        for old, (form, own) in self.solved.items():
            if name in form:
                self.solved[old] = _reduced(_replaced(form, name, rest, divisor), own * divisor)
        self.solved[name] = _reduced(rest, divisor)

    def _holds(self, row: Affine) -> Expr:
        """`row = 0`, with the positive terms on the left."""
        left, right = ({n: s * c for n, c in row.items() if s * c > 0} for s in (1, -1))
        return binary("eq", self.space.expr(left), self.space.expr(right))

    def _range(self, name: str) -> list[Expr]:
        """What a solved unknown needs: to be an integer, inside its range. What is known to hold is left out."""
        form, divisor = self.solved[name]
        low, high = self.space.bounds[name]
        expr, guards = self.space.expr(form), []
        if divisor > 1:
            guards.append(binary("eq", expr % divisor, constant(0)))
        if not self.space.nonnegative(add(form, low, -divisor)):
            guards.append(binary("ge", expr, self.space.expr(scale(low, divisor))))
        if not self.space.nonnegative(add(scale(high, divisor), form, -1)):
            limit = add(scale(high, divisor), {"": 1})
            guards.append(binary("lt", expr, self.space.expr(limit)))
        return guards

    def value(self, name: str) -> Expr:
        """An unknown as an expression over the known variables and the free ones."""
        if name not in self.solved:
            return Var(name)
        form, divisor = self.solved[name]
        return self.space.expr(form) // divisor

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


def _replaced(form: Affine, name: str, rest: Affine, divisor: int) -> Affine:
    """`divisor * form` with `divisor * name` replaced by `rest`."""
    count = form.get(name, 0)
    if not count:
        return form if divisor == 1 else scale(form, divisor)
    return add(scale({n: c for n, c in form.items() if n != name}, divisor), rest, count)


def _reduced(form: Affine, divisor: int) -> tuple[Affine, int]:
    """A form and its divisor without common factors; with divisor 0, the form alone (of an equation)."""
    common = math.gcd(divisor, *form.values()) or 1
    return {n: c // common for n, c in form.items()}, divisor // common
