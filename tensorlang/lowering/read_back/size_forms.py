"""Sums over loops in which quotients of sizes stand for themselves: `n // 32` is as good a size as `n`.

isl writes one number in many ways (`n // 32`, `n - (31 * n + 31) // 32`, `(n + 31) // 32 - 1` where n % 32 >= 1): they
become one. With n = 32 * q + r, a quotient of n is a sum of q and n as soon as the range of r decides it. One of loops
is a sum as soon as the ranges of those that it does not divide decide it: `(8 * i + j) // 8` is i where j < 8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from tensorlang.dataclass import dataclass
from tensorlang.ir.affine import Affine, add, affine, to_expr
from tensorlang.ir.expr import Binary, Const, Expr, Var, rewrite
from tensorlang.polyhedral.statement import Bounds

Remainders: TypeAlias = Mapping[tuple[str, int], tuple[int, int]]
"""By a size and a divisor the least and the largest remainder."""


@dataclass(frozen=True, slots=True)
class SizeForms:
    """What makes sums of expressions over `loops`, of which some bounds are known, and sizes, whose remainders are."""

    loops: frozenset[str]
    remainders: Remainders
    bounds: Bounds

    @staticmethod
    def under(conditions: Iterable[Expr], loops: Iterable[str], bounds: Bounds) -> SizeForms:
        """What holds where conditions do, in loops that have such constant bounds."""
        found: dict[tuple[str, int], tuple[int, int]] = {}
        for condition in conditions:
            match condition:
                case Binary("ge" | "lt" as op, Binary("floormod", Var(name), Const(int(divisor))), Const(int(number))):
                    low, high = found.get((name, divisor), (0, divisor - 1))
                    found[name, divisor] = (max(low, number), high) if op == "ge" else (low, min(high, number - 1))
        return SizeForms(frozenset(loops), found, bounds)

    def of(self, expr: Expr) -> Affine | None:
        """The sum that an expression is; None where it is none."""
        form = affine(expr)
        return affine(rewrite(expr, self._sum)) if form is None else form

    def _sum(self, node: Expr) -> Expr | None:
        """What a quotient or a remainder is the sum of."""
        match node:
            case Binary("floordiv" | "floormod" as op, inner, Const(int(divisor))) if divisor > 0:
                form = affine(inner)
                if form is None:
                    return None
                quotient = (self._of_loops if self.loops & form.keys() else self._of_sizes)(form, divisor)
                if quotient is not None:
                    return to_expr(quotient if op == "floordiv" else add(form, quotient, -divisor), node.dtype)
        return None

    def _of_loops(self, form: Affine, divisor: int) -> Affine | None:
        """A quotient to which what is not divided adds one number at all values of its loops."""
        whole = {name: factor // divisor for name, factor in form.items() if factor % divisor == 0}
        rest = add(form, whole, -divisor)
        low = high = rest.pop("", 0)
        for name, factor in rest.items():
            if name not in self.bounds:
                return None
            ends = [factor * end for end in (self.bounds[name][0], self.bounds[name][1] - 1)]
            low, high = low + min(ends), high + max(ends)
        added = low // divisor
        return add(whole, {"": added} if added else {}) if added == high // divisor else None

    def _of_sizes(self, form: Affine, divisor: int) -> Affine:
        whole: Affine = {}
        rest: Affine = {}
        for name, factor in form.items():
            near = factor // divisor if not name else (2 * factor + divisor) // (2 * divisor)
            whole |= {name: near} if near else {}
            rest |= {name: factor - near * divisor} if factor != near * divisor else {}
        names = [name for name in rest if name]
        if not names:
            return whole
        if len(names) == 1:
            low, high = self.remainders.get((names[0], divisor), (0, divisor - 1))
            factor, constant = rest[names[0]], rest.get("", 0)
            first, last = ((factor * end + constant) // divisor for end in (low, high))
            if first == last:
                return add(add(whole, {f"{names[0]} // {divisor}": factor}), {"": first} if first else {})
        return add(whole, {f"({sorted(rest.items())}) // {divisor}": 1})
