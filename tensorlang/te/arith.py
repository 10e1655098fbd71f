"""`tvm.arith`: what the simplifier makes of expressions of integers, and what it proves of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError, shown
from tensorlang.ir.expr import Const, Expr, ExprLike, Var, as_expr, substitute
from tensorlang.ir.index import to_index
from tensorlang.ir.simplify.forms import Range as Bounds
from tensorlang.ir.simplify.scope import INTEGER, Scope
from tensorlang.location import caller
from tensorlang.names import listing, lookup
from tensorlang.te.axis import Axis, Range


@dataclass(frozen=True, slots=True)
class ConstIntBound:
    """Between which integers an expression lies, both included; infinite where nothing is known."""

    POS_INF: ClassVar[int] = (1 << 63) - 1
    NEG_INF: ClassVar[int] = 1 - (1 << 63)

    min_value: int
    max_value: int


class Analyzer:
    """Simplifies expressions and proves conditions, for what it is told of variables.

    Arithmetic of variables is that of indices: in int64, and taken not to wrap. A condition that is not proven may hold
    all the same. Floats are left as they are.

        >>> from tensorlang import arith, te
        >>> analyzer, i = arith.Analyzer(), te.var("i")
        >>> analyzer.bind(i, te.Range.from_min_extent(0, 8))
        >>> analyzer.simplify((i * 16 + 5) // 16), analyzer.can_prove(i < 8), analyzer.can_prove(i < 7)
        (i, True, False)
    """

    def __init__(self) -> None:
        self._bounds: dict[str, Bounds] = {}
        self._values: dict[str, Expr] = {}
        self._conditions: list[Expr] = []

    def bind(self, var: Var | Axis, expr: Range | ExprLike) -> None:
        """Say which range a variable is of, or what it is equal to; of what is no number its conditions."""
        own = as_expr(var)
        if not isinstance(own, Var):
            raise DefinitionError(f"bind takes a variable, got {shown(var)}", caller())
        if not isinstance(expr, Range):
            self._values[own.name] = self.simplify(as_expr(expr))
            return
        low, extent = self.simplify(expr.min), self.simplify(expr.extent)
        first = int(low.value) if isinstance(low, Const) else None
        last = first + int(extent.value) - 1 if first is not None and isinstance(extent, Const) else None
        self._bounds[own.name] = first, last
        if last is None:
            self._conditions += [to_index(own >= low), to_index(own < low + extent)]

    def update(self, var: Var | Axis, info: ConstIntBound, override: bool = False) -> None:
        """Say between which integers a variable lies; within what is known of it already, unless `override`."""
        name, known = str(as_expr(var)), (ConstIntBound.NEG_INF, ConstIntBound.POS_INF)
        low, high = info.min_value, info.max_value
        if not override:
            least, most = self._bounds.get(name, known)
            low, high = max(low, known[0] if least is None else least), min(high, known[1] if most is None else most)
        self._bounds[name] = None if low == known[0] else low, None if high == known[1] else high

    def simplify(self, expr: ExprLike, steps: int = 2) -> Expr:
        """Return an expression of the same value, simplified; `steps` is accepted for TVM's sake."""
        del steps
        with self._scope() as scope:
            return scope.value(self._meant(expr))

    rewrite_simplify = canonical_simplify = simplify

    def can_prove(self, expr: ExprLike) -> bool:
        """Return whether a condition is proven to hold."""
        decided = self.simplify(expr)
        return isinstance(decided, Const) and bool(decided.value)

    def can_prove_equal(self, lhs: ExprLike, rhs: ExprLike) -> bool:
        """Return whether two expressions are proven to be equal."""
        return self.can_prove(as_expr(lhs).equal(rhs))

    def can_prove_greater_equal(self, expr: ExprLike, lower: ExprLike) -> bool:
        """Return whether an expression is proven not to be below another."""
        return self.can_prove(as_expr(expr) >= lower)

    def can_prove_less(self, expr: ExprLike, upper: ExprLike) -> bool:
        """Return whether an expression is proven to be below another."""
        return self.can_prove(as_expr(expr) < upper)

    def const_int_bound(self, expr: ExprLike) -> ConstIntBound:
        """Return between which integers an expression lies; DefinitionError for one that is no integer."""
        given = self._meant(expr)
        with self._scope() as scope:
            if given.dtype not in INTEGER:
                raise DefinitionError(f"const_int_bound takes an expression of integers, got {given.dtype}", caller())
            low, high = scope.atoms.range(scope.form(given))
        return ConstIntBound(
            ConstIntBound.NEG_INF if low is None else low, ConstIntBound.POS_INF if high is None else high
        )

    @contextmanager
    def constraint_scope(self, constraint: ExprLike) -> Iterator[None]:
        """Take a condition for given inside: `with analyzer.constraint_scope(i < n):`."""
        self._conditions.append(self._meant(constraint))
        try:
            yield
        finally:
            self._conditions.pop()

    def _meant(self, expr: ExprLike) -> Expr:
        """An expression over what variables are equal to, as index arithmetic, which does not wrap."""
        meant = substitute(as_expr(expr), self._values)
        return to_index(meant) if meant.dtype == "bool" or dtypes.info(meant.dtype).is_integer else meant

    @contextmanager
    def _scope(self) -> Iterator[Scope]:
        scope = Scope(self._bounds)
        with ExitStack() as stack:
            for condition in self._conditions:
                stack.enter_context(scope.assuming(condition))
            yield scope


def __getattr__(name: str) -> Any:
    return lookup(__name__, name)


def __dir__() -> list[str]:
    return listing(__name__)
