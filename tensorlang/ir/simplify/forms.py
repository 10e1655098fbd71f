"""Linear forms over atoms: the normal form of the integer simplifier.

A form is `sum(coefficient * atom) + constant` in mathematical integers. An atom is a variable or an expression
that is opaque to addition (a load, a quotient, a minimum, ...), known by a structural key. Forms stand for
expressions whose arithmetic cannot wrap: `Atoms.fits` decides that from ranges.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeAlias

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.affine import weighted_sum
from tensorlang.ir.expr import Cast, Const, Expr

Bound: TypeAlias = int | None
Range: TypeAlias = tuple[Bound, Bound]
Key: TypeAlias = Hashable

FULL: Range = (None, None)
LIMITS = {name: tuple(map(int, dtypes.limits(name))) for name, d in dtypes.TABLE.items() if d.is_integer}
_WIDE = 1 << 62


class Form:
    """`sum(terms[key] * atom) + const`; no coefficient is zero. Treated as immutable."""

    __slots__ = ("const", "terms")

    def __init__(self, terms: dict[Key, int], const: int) -> None:
        self.terms = terms
        self.const = const

    def key(self) -> Key:
        """A hashable identity: equal keys, equal values."""
        return frozenset(self.terms.items()), self.const

    def scaled(self, factor: int) -> Form:
        """`factor * self`."""
        if factor == 1:
            return self
        if factor == 0:
            return Form({}, 0)
        return Form({key: factor * c for key, c in self.terms.items()}, factor * self.const)

    def plus(self, other: Form, factor: int = 1) -> Form:
        """`self + factor * other`."""
        terms = dict(self.terms)
        for key, c in other.terms.items():
            total = terms.get(key, 0) + factor * c
            if total:
                terms[key] = total
            else:
                terms.pop(key, None)
        return Form(terms, self.const + factor * other.const)

    def shifted(self, amount: int) -> Form:
        """`self + amount`."""
        return Form(self.terms, self.const + amount) if amount else self

    def without(self, key: Key) -> Form:
        """The form with the term of one atom dropped."""
        return Form({k: c for k, c in self.terms.items() if k != key}, self.const)


@dataclass(frozen=True, slots=True)
class Atom:
    """What a key stands for: its expression and inclusive range, and how it was made.

    `made` is "" (opaque), "var", "div", "mod", "min" or "max"; `parts` are the operands as forms, `divisor` that
    of a quotient or remainder. `stable` atoms read no memory, so facts about them outlive a statement.
    """

    expr: Expr
    low: Bound
    high: Bound
    made: str = ""
    parts: tuple[Form, ...] = ()
    divisor: int = 0
    stable: bool = True

    @property
    def wide(self) -> bool:
        """Whether it can take any 64-bit value, so that any arithmetic on it may wrap."""
        return self.low is not None and self.high is not None and self.high - self.low >= _WIDE


class Atoms:
    """The atoms met so far, and what forms over them are worth."""

    __slots__ = ("division", "table")

    def __init__(self) -> None:
        self.table: dict[Key, Atom] = {}
        self.division = False

    def range(self, form: Form) -> Range:
        """Inclusive bounds of a form, from the ranges of its atoms."""
        low: Bound = form.const
        high: Bound = form.const
        table = self.table
        for key, c in form.terms.items():
            atom = table[key]
            least, most = (atom.low, atom.high) if c > 0 else (atom.high, atom.low)
            low = None if low is None or least is None else low + c * least
            high = None if high is None or most is None else high + c * most
        return low, high

    def fits(self, form: Form, dtype: str) -> bool:
        """Whether a dtype holds every value of the form, so that its arithmetic does not wrap.

        Unbounded variables count as indices, which never come near the limits of int64.
        """
        least, most = LIMITS[dtype]
        terms = form.terms
        if not terms:
            return least <= form.const <= most
        if len(terms) == 1 and form.const == 0 and self._is_atom(terms, dtype):
            return True
        low, high = self.range(form)
        if dtype != "int64":
            # A sum is emitted in int64 at need, so values that only uint64 holds do not count as fitting.
            return low is not None and high is not None and least <= low and high <= min(most, LIMITS["int64"][1])
        if low is not None and high is not None and least <= low and high <= most:
            return True
        if abs(form.const) >= _WIDE or any(abs(c) >= _WIDE or self.table[k].wide for k, c in terms.items()):
            return False
        return all(bound is None or least <= bound <= most for bound in (low, high))

    def _is_atom(self, terms: dict[Key, int], dtype: str) -> bool:
        """Whether a term is an atom of a dtype, which holds it."""
        ((key, c),) = terms.items()
        return c == 1 and self.table[key].expr.dtype == dtype

    def narrow(self, form: Form) -> bool:
        """Whether the form is index arithmetic: none of its atoms can take any 64-bit value."""
        return not any(self.table[key].wide for key in form.terms)

    def emit(self, form: Form, dtype: str) -> Expr:
        """The expression of a form that fits `dtype`."""
        if not form.terms:
            return Const(form.const, dtype)
        table = self.table
        terms = [(c, table[key].expr) for key, c in form.terms.items()]
        if len(terms) == 1 and terms[0][0] == 1 and form.const == 0:
            return _converted(terms[0][1], dtype)
        least, most = LIMITS[dtype]
        width = dtype
        if all(term.dtype == "int64" for _, term in terms) or not all(
            least < n <= most for n in (form.const, *form.terms.values())
        ):
            width = "int64"
        return _converted(weighted_sum([(c, _converted(term, width)) for c, term in terms], form.const, width), dtype)


def _converted(expr: Expr, dtype: str) -> Expr:
    if expr.dtype == dtype:
        return expr
    if isinstance(expr, Const):
        return Const(int(expr.value), dtype)
    return Cast(expr, dtype)
