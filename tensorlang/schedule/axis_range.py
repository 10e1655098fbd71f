"""Ranges of axes, as int64 expressions of the sizes, and the arithmetic that keeps them simple."""

from __future__ import annotations

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Binary, Const, Expr, Var, binary, rewrite, same
from tensorlang.ir.expr import fold_integers as fold
from tensorlang.ir.index import to_index
from tensorlang.ir.stmt import INDEX

ZERO = Const(0, INDEX)
ONE = Const(1, INDEX)


@dataclass(frozen=True, slots=True)
class AxisRange:
    """`lower <= axis < lower + extent`, int64."""

    lower: Expr
    extent: Expr

    @property
    def upper(self) -> Expr:
        if isinstance(self.lower, Const) and self.lower.value == 0:
            return self.extent
        return binary("add", self.lower, self.extent)

    @property
    def ends(self) -> tuple[int | None, int | None]:
        """The inclusive constant bounds, as far as known."""
        low, end = (int(e.value) if isinstance(e, Const) else None for e in (self.lower, self.upper))
        return low, None if end is None else end - 1

    def earlier(self, count: int) -> AxisRange:
        """As many values, each `count` lower."""
        return AxisRange(simple(binary("sub", self.lower, count)), self.extent)

    def holds(self, value: Expr) -> tuple[Expr, Expr]:
        """The two conditions that keep a value in the range."""
        return binary("ge", value, self.lower), binary("lt", value, self.upper)


def hull(a: AxisRange, b: AxisRange) -> AxisRange:
    """The smallest range that holds two."""
    if a is b or (same(a.lower, b.lower) and same(a.extent, b.extent)):
        return a
    lower = binary("min", a.lower, b.lower)
    return AxisRange(lower, binary("sub", binary("max", a.upper, b.upper), lower))


def simple(expr: Expr) -> Expr:
    """Fold integer constants, as `binary` does where it joins expressions that are folded already."""
    if isinstance(expr, Const | Var):
        return expr
    return rewrite(expr, lambda e: fold(e.op, e.a, e.b) if isinstance(e, Binary) else None)


def constant(expr: Expr) -> int | None:
    """The value of a constant expression, else None."""
    folded = simple(expr)
    return int(folded.value) if isinstance(folded, Const) else None


def symbolic(expr: Expr) -> Expr:
    """An extent of a te axis as an int64 expression of the sizes."""
    return simple(to_index(expr))
