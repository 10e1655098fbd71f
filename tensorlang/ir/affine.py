"""Affine expressions as plain dictionaries: `{variable name: coefficient, "": constant}`."""

from __future__ import annotations

from collections.abc import Callable

from tensorlang import dtypes
from tensorlang.ir.expr import Binary, Cast, Const, Expr, Unary, Var
from tensorlang.ir.traverse import bounded

Affine = dict[str, int]

AT_LEAST_ZERO = {"ge": (1, 0), "gt": (1, -1), "le": (-1, 0), "lt": (-1, -1)}
"""Comparison -> the factor of `a - b` and what to add, for a sum that is at least 0."""


@bounded
def affine(expr: Expr) -> Affine | None:
    """Return the affine form of an integer expression over variables, or None.

    Zero coefficients are left out; the constant is under "". The form is of mathematical integers: it equals
    the expression wherever its arithmetic does not wrap. Widening integer casts are looked through.
    """
    match expr:
        case Const():
            if not dtypes.info(expr.dtype).is_integer:
                return None
            return {"": int(expr.value)} if expr.value else {}
        case Var():
            return {expr.name: 1} if dtypes.info(expr.dtype).is_integer else None
        case Unary(op="neg"):
            inner = affine(expr.a)
            return None if inner is None else scale(inner, -1)
        case Cast():
            return affine(expr.value) if widens(expr.value.dtype, expr.dtype) else None
        case Binary(op="add" | "sub" | "mul"):
            left = affine(expr.a)
            right = None if left is None else affine(expr.b)
            if left is None or right is None:
                return None
            if expr.op != "mul":
                return add(left, right, 1 if expr.op == "add" else -1)
            if is_constant(right):
                return scale(left, right.get("", 0))
            return scale(right, left.get("", 0)) if is_constant(left) else None
    return None


def add(a: Affine, b: Affine, factor: int = 1) -> Affine:
    """Return `a + factor * b`."""
    result = dict(a)
    for name, coefficient in b.items():
        total = result.get(name, 0) + factor * coefficient
        if total:
            result[name] = total
        else:
            result.pop(name, None)
    return result


def scale(a: Affine, factor: int) -> Affine:
    """Return `factor * a`."""
    return {name: factor * coefficient for name, coefficient in a.items()} if factor else {}


def nonnegative(condition: Expr, form_of: Callable[[Expr], Affine | None] = affine) -> list[Affine]:
    """Return the sums that are at least 0 where a comparison holds; none if it is no comparison of sums."""
    if not isinstance(condition, Binary) or (condition.op not in AT_LEAST_ZERO and condition.op != "eq"):
        return []
    left, right = form_of(condition.a), form_of(condition.b)
    if left is None or right is None:
        return []
    form = add(left, right, -1)
    if condition.op == "eq":
        return [form, scale(form, -1)]
    sign, more = AT_LEAST_ZERO[condition.op]
    return [add(scale(form, sign), {"": more} if more else {})]


def is_constant(a: Affine) -> bool:
    """Whether no variable is left."""
    return not a or (len(a) == 1 and "" in a)


def widens(source: str, target: str) -> bool:
    """Whether every value of the integer dtype `source` is one of the integer dtype `target`."""
    if not (dtypes.info(source).is_integer and dtypes.info(target).is_integer):
        return False
    low, high = dtypes.limits(source)
    least, most = dtypes.limits(target)
    return least <= low and high <= most


def to_expr(form: Affine, dtype: str = "int64") -> Expr:
    """Return the expression of an affine form over variables of one dtype: `2 * i + j - 3`."""
    terms: list[tuple[int, Expr]] = [(coefficient, Var(name, dtype)) for name, coefficient in form.items() if name]
    return weighted_sum(terms, form.get("", 0), dtype)


def weighted_sum(terms: list[tuple[int, Expr]], constant: int, dtype: str) -> Expr:
    """Return `sum(coefficient * term) + constant` with as few nodes as possible; a positive term comes first."""
    total: Expr | None = None
    lead = next((n for n, (coefficient, _) in enumerate(terms) if coefficient > 0), -1)
    if lead > 0:
        terms = [terms[lead], *terms[:lead], *terms[lead + 1 :]]
    elif lead < 0 and terms and constant > 0:
        total, constant = Const(constant, dtype), 0
    for coefficient, term in terms:
        size = abs(coefficient) if total is not None else coefficient
        if size in (1, -1):
            product = term if size == 1 else Unary("neg", term, dtype)
        else:
            product = Binary("mul", Const(size, dtype), term, dtype)
        if total is None:
            total = product
        else:
            total = Binary("add" if coefficient > 0 else "sub", total, product, dtype)
    if total is None:
        return Const(constant, dtype)
    if constant:
        total = Binary("add" if constant > 0 else "sub", total, Const(abs(constant), dtype), dtype)
    return total
