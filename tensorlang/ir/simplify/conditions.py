"""Rules for conditions, and for the choices that they decide."""

from __future__ import annotations

from math import gcd

from tensorlang import dtypes
from tensorlang.ir.expr import Binary, Cast, Const, Expr, Select, Unary, Var
from tensorlang.ir.operators import COMPARE
from tensorlang.ir.simplify.forms import Form
from tensorlang.ir.simplify.scope import INTEGER, NEGATION, Scope, value_rule

TRUE = Const(True, "bool")
FALSE = Const(False, "bool")


@value_rule(Binary)
def _binary(scope: Scope, expr: Binary) -> Expr:
    if expr.op in ("and", "or"):
        return _logical(scope, expr)
    if expr.op in COMPARE and expr.a.dtype in INTEGER:
        return _compare(scope, expr)
    rebuilt = scope.rebuilt(expr)
    if isinstance(rebuilt, Binary) and rebuilt.op in ("eq", "ne") and rebuilt.a.dtype == "bool":
        return _same_truth(rebuilt)
    return rebuilt


def _same_truth(expr: Binary) -> Expr:
    """`x == True` is `x`, `x == False` is `not x`."""
    for side, other in ((expr.a, expr.b), (expr.b, expr.a)):
        if isinstance(other, Const):
            return side if bool(other.value) == (expr.op == "eq") else negated(side)
    return expr


def _logical(scope: Scope, expr: Binary) -> Expr:
    decided = expr.op == "or"
    a = scope.value(expr.a)
    if isinstance(a, Const):
        return a if bool(a.value) == decided else scope.value(expr.b)
    with scope.assuming(a, truth=not decided):
        b = scope.value(expr.b)
    if isinstance(b, Const):
        return b if bool(b.value) == decided else a
    return expr if a is expr.a and b is expr.b else Binary(expr.op, a, b, "bool")


def negated(condition: Expr) -> Expr:
    """The opposite of a condition; comparisons of integers turn round."""
    match condition:
        case Const():
            return FALSE if condition.value else TRUE
        case Unary(op="not"):
            return condition.a
        case Binary() if condition.op in COMPARE and condition.a.dtype in INTEGER:
            return Binary(NEGATION[condition.op], condition.a, condition.b, "bool")
    return Unary("not", condition, "bool")


def _compare(scope: Scope, expr: Binary) -> Expr:
    a, b = scope.form(expr.a), scope.form(expr.b)
    op = expr.op
    if op in ("gt", "ge"):
        a, b, op = b, a, "lt" if op == "gt" else "le"
    if op in ("eq", "ne"):
        return _equality(scope, expr, a, b)
    # a < b and a <= b as slack >= 0
    slack = b.plus(a, -1)
    if op == "lt":
        slack = slack.shifted(-1)
    if scope.facts.nonnegative(slack):
        return TRUE
    if scope.facts.nonnegative(slack.scaled(-1).shifted(-1)):
        return FALSE
    return _at_least_zero(scope, slack, expr)


def _at_least_zero(scope: Scope, slack: Form, expr: Binary) -> Expr:
    """`slack >= 0`, which `expr` says, with what is positive on the right and the least constants."""
    step = _common_divisor(slack)
    const = slack.const // step
    right = Form({k: c // step for k, c in slack.terms.items() if c > 0}, 0)
    left = Form({k: -c // step for k, c in slack.terms.items() if c < 0}, 0)
    strict = expr.op in ("lt", "gt")
    # left <= right + const
    if not left.terms:
        sides = ("gt", right, Form({}, -const - 1)) if strict else ("ge", right, Form({}, -const))
    elif not right.terms:
        sides = ("lt", left, Form({}, const + 1)) if strict else ("le", left, Form({}, const))
    elif const == 0:
        sides = ("le", left, right)
    elif const < 0:
        sides = ("lt", left.shifted(-const - 1), right)
    else:
        sides = ("lt", left, right.shifted(const + 1))
    return _sides(scope, *sides, expr)


def _sides(scope: Scope, op: str, left: Form, right: Form, expr: Binary) -> Expr:
    """A comparison of two forms, or `expr` over simplified operands where one of them may wrap."""
    atoms = scope.atoms
    native = all(atoms.table[k].expr.dtype == "int64" for side in (left, right) for k in side.terms)
    width = "int64" if native else expr.a.dtype
    if not (atoms.fits(left, width) and atoms.fits(right, width)):
        return scope.rebuilt(expr)
    return Binary(op, atoms.emit(left, width), atoms.emit(right, width), "bool")


def _common_divisor(slack: Form) -> int:
    return gcd(*slack.terms.values()) or 1


def _equality(scope: Scope, expr: Binary, a: Form, b: Form) -> Expr:
    difference = a.plus(b, -1)
    yes, no = (TRUE, FALSE) if expr.op == "eq" else (FALSE, TRUE)
    if not difference.terms:
        return no if difference.const else yes
    step = _common_divisor(difference)
    if difference.const % step:
        return no
    prove = scope.facts.nonnegative
    above, below = prove(difference), prove(difference.scaled(-1))
    if above and below:
        return yes
    if (above and prove(difference.shifted(-1))) or (below and prove(difference.scaled(-1).shifted(-1))):
        return no
    left = Form({k: c // step for k, c in difference.terms.items() if c > 0}, 0)
    right = Form({k: -c // step for k, c in difference.terms.items() if c < 0}, 0)
    const = difference.const // step
    if not left.terms:
        left, right, const = right, left, -const
    sides = (left, right.shifted(-const)) if const <= 0 or not right.terms else (left.shifted(const), right)
    return _sides(scope, expr.op, *sides, expr)


@value_rule(Unary)
def _unary(scope: Scope, expr: Unary) -> Expr:
    inner = scope.value(expr.a)
    if expr.op == "not":
        return negated(inner)
    return expr if inner is expr.a else Unary(expr.op, inner, expr.dtype)


@value_rule(Select)
def _select(scope: Scope, expr: Select) -> Expr:
    condition = scope.value(expr.cond)
    if isinstance(condition, Const):
        return scope.value(expr.then if condition.value else expr.orelse)
    with scope.assuming(condition):
        then = scope.value(expr.then)
    with scope.assuming(condition, truth=False):
        orelse = scope.value(expr.orelse)
    return Select(condition, then, orelse, expr.dtype)


@value_rule(Cast)
def _cast(scope: Scope, expr: Cast) -> Expr:
    inner = scope.value(expr.value)
    if expr.dtype == "bool" and isinstance(inner, Const) and not dtypes.info(inner.dtype).is_float:
        return TRUE if inner.value else FALSE
    return expr if inner is expr.value else Cast(inner, expr.dtype)


@value_rule(Const)
@value_rule(Var)
def _leaf(scope: Scope, expr: Expr) -> Expr:
    return expr
