"""The rules of the simplifier: every expression class, integer operation and condition has one function here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import gcd
from typing import Any

from tensorlang import dtypes
from tensorlang.ir.division import Wraps, quotient, recombined, remainder
from tensorlang.ir.expr import (
    COMPARE,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    Var,
    walk,
)
from tensorlang.ir.forms import FULL, LIMITS, Atom, Atoms, Form, Key, Range
from tensorlang.ir.prove import Facts

TRUE = Const(True, "bool")
FALSE = Const(False, "bool")
_INTEGER = frozenset(LIMITS)
_NEGATION = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}


class Scope:
    """What the simplifier knows at one place: variables by name, atoms, facts."""

    __slots__ = ("atoms", "count", "facts", "names")

    def __init__(self, ranges: Mapping[str, Range]) -> None:
        self.atoms = Atoms()
        self.facts = Facts(self.atoms)
        self.names: dict[str, Form] = {}
        self.count = 0
        for name, limits in ranges.items():
            self.names[name] = self.fresh(Var(name, "int64"), limits)

    def fresh(self, var: Var, limits: Range) -> Form:
        """A new atom for a variable; another variable of that name elsewhere is another atom."""
        self.count += 1
        key: Key = (var.name, self.count)
        low, high = limits
        if var.dtype != "int64":
            least, most = LIMITS[var.dtype]
            low = least if low is None else max(low, least)
            high = most if high is None else min(high, most)
        self.atoms.table[key] = Atom(var, low, high, "var")
        return Form({key: 1}, 0)

    @contextmanager
    def assuming(self, condition: Expr, truth: bool = True, lasting: bool = False) -> Iterator[None]:
        """Facts of a condition hold inside; `lasting` drops those that a store could change."""
        known = self.facts.known
        size = len(known)
        for fact in self._facts(condition, truth):
            if not lasting or self.facts.stable(fact):
                known.append(fact)
        yield
        del known[size:]

    def _facts(self, condition: Expr, truth: bool) -> Iterable[Form]:
        match condition:
            case Unary(op="not"):
                return self._facts(condition.a, not truth)
            case Binary(op="and" | "or") if (condition.op == "and") == truth:
                return [*self._facts(condition.a, truth), *self._facts(condition.b, truth)]
            case Binary() if condition.op in COMPARE and condition.a.dtype in _INTEGER:
                difference = form(self, condition.a).plus(form(self, condition.b), -1)
                match condition.op if truth else _NEGATION[condition.op]:
                    case "lt":
                        return [difference.scaled(-1).shifted(-1)]
                    case "le":
                        return [difference.scaled(-1)]
                    case "gt":
                        return [difference.shifted(-1)]
                    case "ge":
                        return [difference]
                    case "eq":
                        return [difference, difference.scaled(-1)]
        return ()


def form(scope: Scope, expr: Expr) -> Form:
    """The linear form of an integer expression; equal to it in value."""
    rule = _FORM.get(type(expr))
    return _opaque(scope, _rebuilt(scope, expr)) if rule is None else rule(scope, expr)


def value(scope: Scope, expr: Expr) -> Expr:
    """The simplified expression, of the same dtype and value."""
    if expr.dtype in _INTEGER:
        return scope.atoms.emit(form(scope, expr), expr.dtype)
    rule = _VALUE.get(type(expr))
    return _rebuilt(scope, expr) if rule is None else rule(scope, expr)


def _rebuilt(scope: Scope, expr: Expr) -> Expr:
    old = expr.children()
    new = tuple([value(scope, child) for child in old])
    return expr if all(a is b for a, b in zip(old, new)) else expr.with_children(new)


def _opaque(scope: Scope, expr: Expr, limits: Range = FULL, index: bool = False) -> Form:
    """A form of one atom: an expression that the rules do not look into.

    `index` says that it is index arithmetic, far from the limits of int64.
    """
    if isinstance(expr, Const):
        return Form({}, int(expr.value))
    key = _key(expr)
    if key not in scope.atoms.table:
        low, high = limits
        if not index:
            least, most = LIMITS[expr.dtype]
            low = least if low is None else max(low, least)
            high = most if high is None else min(high, most)
        stable = not any(isinstance(node, Load) for node in walk(expr))
        scope.atoms.table[key] = Atom(expr, low, high, stable=stable)
    return Form({key: 1}, 0)


def _key(expr: Expr) -> Key:
    if isinstance(expr, Const):
        return expr.dtype, repr(expr.value)
    return type(expr).__name__, expr.dtype, expr.label(), tuple([_key(child) for child in expr.children()])


# --- integers -------------------------------------------------------------------------------------------------


def _form_const(scope: Scope, expr: Const) -> Form:
    return Form({}, int(expr.value))


def _form_var(scope: Scope, expr: Var) -> Form:
    known = scope.names.get(expr.name)
    if known is None:
        known = scope.names[expr.name] = scope.fresh(expr, FULL)
    return known if scope.atoms.fits(known, expr.dtype) else _opaque(scope, expr)


def _form_unary(scope: Scope, expr: Unary) -> Form:
    inner = form(scope, expr.a)
    if expr.op == "neg":
        negated = inner.scaled(-1)
        if scope.atoms.fits(negated, expr.dtype):
            return negated
    return _opaque(scope, Unary(expr.op, scope.atoms.emit(inner, expr.dtype), expr.dtype))


def _form_cast(scope: Scope, expr: Cast) -> Form:
    if expr.value.dtype not in _INTEGER:
        inner = value(scope, expr.value)
        if isinstance(inner, Const) and inner.dtype == "bool":
            return Form({}, int(inner.value))
        return _opaque(scope, Cast(inner, expr.dtype), (0, 1) if inner.dtype == "bool" else FULL)
    known = form(scope, expr.value)
    if scope.atoms.fits(known, expr.dtype):
        return known
    if not known.terms:
        return Form({}, _wrapped(known.const, expr.dtype))
    return _opaque(scope, Cast(scope.atoms.emit(known, expr.value.dtype), expr.dtype))


def _wrapped(number: int, dtype: str) -> int:
    least, most = LIMITS[dtype]
    return (number - least) % (most - least + 1) + least


def _form_select(scope: Scope, expr: Select) -> Form:
    condition = value(scope, expr.cond)
    if isinstance(condition, Const):
        return form(scope, expr.then if condition.value else expr.orelse)
    with scope.assuming(condition):
        then = form(scope, expr.then)
    with scope.assuming(condition, truth=False):
        orelse = form(scope, expr.orelse)
    if then.key() == orelse.key():
        return then
    emit, (a, b), (c, d) = scope.atoms.emit, scope.atoms.range(then), scope.atoms.range(orelse)
    limits = (None if a is None or c is None else min(a, c), None if b is None or d is None else max(b, d))
    chosen = Select(condition, emit(then, expr.dtype), emit(orelse, expr.dtype), expr.dtype)
    return _opaque(scope, chosen, limits)


def _form_binary(scope: Scope, expr: Binary) -> Form:
    a, b = form(scope, expr.a), form(scope, expr.b)
    rule = _ARITHMETIC.get(expr.op)
    try:
        result = None if rule is None else rule(scope, a, b, expr.dtype)
        if result is not None and scope.atoms.division and len(result.terms) > 1:
            result = recombined(scope.atoms, result, expr.dtype)
    except Wraps:
        result = None
    if result is not None and scope.atoms.fits(result, expr.dtype):
        return result
    if result is not None and not a.terms and not b.terms:
        return Form({}, _wrapped(result.const, expr.dtype))
    x, y = scope.atoms.emit(a, expr.dtype), scope.atoms.emit(b, expr.dtype)
    index = expr.dtype == "int64" and scope.atoms.narrow(a) and scope.atoms.narrow(b)
    return _opaque(scope, Binary(expr.op, x, y, expr.dtype), _limits(scope, expr.op, a, b), index)


def _limits(scope: Scope, op: str, a: Form, b: Form) -> Range:
    """Ranges of the operations that stay opaque, where they say more than the dtype."""
    (low, high), (least, most) = scope.atoms.range(a), scope.atoms.range(b)
    if op == "mul":
        if low is None or high is None or least is None or most is None:
            same_sign = low is not None and low >= 0 and least is not None and least >= 0
            return (low * least if low is not None and least is not None and same_sign else None), None
        corners = [x * y for x in (low, high) for y in (least, most)]
        return min(corners), max(corners)
    if op in ("floormod", "truncmod") and least is not None and least > 0:
        bottom = 0 if op == "floormod" or (low is not None and low >= 0) else None if most is None else 1 - most
        return bottom, None if most is None else most - 1
    if op in ("floordiv", "truncdiv") and least is not None and least > 0 and low is not None and low >= 0:
        return 0, high
    if op == "bitand" and ((low is not None and low >= 0) or (least is not None and least >= 0)):
        bounds = [
            x for x, bottom in ((high, low), (most, least)) if x is not None and bottom is not None and bottom >= 0
        ]
        return 0, min(bounds, default=None)
    return FULL


def _add(scope: Scope, a: Form, b: Form, dtype: str) -> Form | None:
    return a.plus(b)


def _sub(scope: Scope, a: Form, b: Form, dtype: str) -> Form | None:
    return a.plus(b, -1)


def _mul(scope: Scope, a: Form, b: Form, dtype: str) -> Form | None:
    if not b.terms:
        return a.scaled(b.const)
    if not a.terms:
        return b.scaled(a.const)
    # A product met before in the other order is the same atom.
    emit = scope.atoms.emit
    key = _key(Binary("mul", emit(b, dtype), emit(a, dtype), dtype))
    return Form({key: 1}, 0) if key in scope.atoms.table else None


def _floordiv(scope: Scope, a: Form, b: Form, dtype: str) -> Form | None:
    if b.terms:
        return Form({}, 0) if _below(scope, a, b) else None
    if b.const < 0:
        return quotient(scope.atoms, a.scaled(-1), -b.const, dtype)
    return quotient(scope.atoms, a, b.const, dtype) if b.const else None


def _floormod(scope: Scope, a: Form, b: Form, dtype: str) -> Form | None:
    if b.terms:
        return a if _below(scope, a, b) else None
    if b.const < 0:
        return remainder(scope.atoms, a.scaled(-1), -b.const, dtype).scaled(-1)
    return remainder(scope.atoms, a, b.const, dtype) if b.const else None


def _truncdiv(scope: Scope, a: Form, b: Form, dtype: str) -> Form | None:
    """Truncating and flooring division agree where both operands have no sign."""
    return _floordiv(scope, a, b, dtype) if _unsigned(scope, a) and _unsigned(scope, b) else None


def _truncmod(scope: Scope, a: Form, b: Form, dtype: str) -> Form | None:
    return _floormod(scope, a, b, dtype) if _unsigned(scope, a) and _unsigned(scope, b) else None


def _below(scope: Scope, a: Form, b: Form) -> bool:
    """Whether `0 <= a < b`."""
    return _unsigned(scope, a) and scope.facts.nonnegative(b.plus(a, -1).shifted(-1))


def _unsigned(scope: Scope, a: Form) -> bool:
    return scope.facts.nonnegative(a)


def _min(scope: Scope, a: Form, b: Form, dtype: str) -> Form | None:
    return _extreme(scope, "min", a, b, dtype)


def _max(scope: Scope, a: Form, b: Form, dtype: str) -> Form | None:
    return _extreme(scope, "max", a, b, dtype)


def _extreme(scope: Scope, op: str, a: Form, b: Form, dtype: str) -> Form:
    sign = 1 if op == "min" else -1
    parts: list[Form] = []
    for new in (*_parts(scope, op, a), *_parts(scope, op, b)):
        # Of two parts that are ordered wherever the expression is evaluated, only one counts.
        if any(scope.facts.nonnegative(new.plus(old, -1).scaled(sign)) for old in parts):
            continue
        parts = [old for old in parts if not scope.facts.nonnegative(old.plus(new, -1).scaled(sign))]
        parts.append(new)
    if len(parts) == 1:
        return parts[0]
    atoms = scope.atoms
    key = (op, frozenset(p.key() for p in parts))
    if key not in atoms.table:
        width = dtype if all(atoms.fits(p, dtype) for p in parts) else "int64"
        if not all(atoms.fits(p, width) for p in parts):
            raise Wraps
        expr = atoms.emit(parts[0], width)
        for part in parts[1:]:
            expr = Binary(op, expr, atoms.emit(part, width), width)
        lows, highs = zip(*(atoms.range(p) for p in parts))
        choose: Callable[..., int] = min if op == "min" else max
        near, far = (highs, lows) if op == "min" else (lows, highs)
        # One bound on the side the operation cuts is enough; the other side needs them all.
        cut = choose((x for x in near if x is not None), default=None)
        open_end = None if None in far else choose(far)
        low, high = (open_end, cut) if op == "min" else (cut, open_end)
        stable = all(scope.facts.stable(p) for p in parts)
        atoms.table[key] = Atom(expr, low, high, op, tuple(parts), stable=stable)
    return Form({key: 1}, 0)


def _parts(scope: Scope, op: str, whole: Form) -> tuple[Form, ...]:
    if len(whole.terms) == 1 and whole.const == 0:
        ((key, c),) = whole.terms.items()
        atom = scope.atoms.table[key]
        if c == 1 and atom.made == op:
            return atom.parts
    return (whole,)


# --- conditions and everything else ---------------------------------------------------------------------------


def _value_binary(scope: Scope, expr: Binary) -> Expr:
    if expr.op in ("and", "or"):
        return _logical(scope, expr)
    if expr.op in COMPARE and expr.a.dtype in _INTEGER:
        return _compare(scope, expr)
    rebuilt = _rebuilt(scope, expr)
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
    a = value(scope, expr.a)
    if isinstance(a, Const):
        return a if bool(a.value) == decided else value(scope, expr.b)
    with scope.assuming(a, truth=not decided):
        b = value(scope, expr.b)
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
        case Binary() if condition.op in COMPARE and condition.a.dtype in _INTEGER:
            return Binary(_NEGATION[condition.op], condition.a, condition.b, "bool")
    return Unary("not", condition, "bool")


def _compare(scope: Scope, expr: Binary) -> Expr:
    a, b = form(scope, expr.a), form(scope, expr.b)
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
    # left <= right + const
    if not left.terms:
        sides = ("ge", right, Form({}, -const))
    elif not right.terms:
        sides = ("lt", left, Form({}, const + 1))
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
        return _rebuilt(scope, expr)
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


def _value_unary(scope: Scope, expr: Unary) -> Expr:
    inner = value(scope, expr.a)
    if expr.op == "not":
        return negated(inner)
    return expr if inner is expr.a else Unary(expr.op, inner, expr.dtype)


def _value_select(scope: Scope, expr: Select) -> Expr:
    condition = value(scope, expr.cond)
    if isinstance(condition, Const):
        return value(scope, expr.then if condition.value else expr.orelse)
    with scope.assuming(condition):
        then = value(scope, expr.then)
    with scope.assuming(condition, truth=False):
        orelse = value(scope, expr.orelse)
    return Select(condition, then, orelse, expr.dtype)


def _value_cast(scope: Scope, expr: Cast) -> Expr:
    inner = value(scope, expr.value)
    if expr.dtype == "bool" and isinstance(inner, Const) and not dtypes.info(inner.dtype).is_float:
        return TRUE if inner.value else FALSE
    return expr if inner is expr.value else Cast(inner, expr.dtype)


def _leaf(scope: Scope, expr: Expr) -> Expr:
    return expr


_ARITHMETIC: dict[str, Callable[[Scope, Form, Form, str], Form | None]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "floordiv": _floordiv,
    "floormod": _floormod,
    "truncdiv": _truncdiv,
    "truncmod": _truncmod,
    "min": _min,
    "max": _max,
}
_FORM: dict[type[Expr], Callable[[Scope, Any], Form]] = {
    Const: _form_const,
    Var: _form_var,
    Binary: _form_binary,
    Unary: _form_unary,
    Cast: _form_cast,
    Select: _form_select,
}
_VALUE: dict[type[Expr], Callable[[Scope, Any], Expr]] = {
    Const: _leaf,
    Var: _leaf,
    Binary: _value_binary,
    Unary: _value_unary,
    Cast: _value_cast,
    Select: _value_select,
    Load: _rebuilt,
    Call: _rebuilt,
}
