"""Rules for integer arithmetic: every operation that linear forms say something about."""

from __future__ import annotations

from collections.abc import Callable

from tensorlang.ir.expr import Binary, Cast, Const, Select, Unary, Var
from tensorlang.ir.simplify.division import Wraps, quotient, recombined, remainder
from tensorlang.ir.simplify.forms import FULL, LIMITS, Atom, Form, Range
from tensorlang.ir.simplify.scope import INTEGER, Scope, form_rule, structure


@form_rule(Const)
def _const(scope: Scope, expr: Const) -> Form:
    return Form({}, int(expr.value))


@form_rule(Var)
def _var(scope: Scope, expr: Var) -> Form:
    known = scope.variable(expr)
    return known if scope.atoms.fits(known, expr.dtype) else scope.opaque(expr)


@form_rule(Unary)
def _unary(scope: Scope, expr: Unary) -> Form:
    inner = scope.form(expr.a)
    if expr.op == "neg":
        negated = inner.scaled(-1)
        if scope.atoms.fits(negated, expr.dtype):
            return negated
    return scope.opaque(Unary(expr.op, scope.atoms.emit(inner, expr.dtype), expr.dtype))


@form_rule(Cast)
def _cast(scope: Scope, expr: Cast) -> Form:
    if expr.value.dtype not in INTEGER:
        inner = scope.value(expr.value)
        if isinstance(inner, Const) and inner.dtype == "bool":
            return Form({}, int(inner.value))
        return scope.opaque(Cast(inner, expr.dtype), (0, 1) if inner.dtype == "bool" else FULL)
    known = scope.form(expr.value)
    if scope.atoms.fits(known, expr.dtype):
        return known
    if not known.terms:
        return Form({}, _wrapped(known.const, expr.dtype))
    return scope.opaque(Cast(scope.atoms.emit(known, expr.value.dtype), expr.dtype))


def _wrapped(number: int, dtype: str) -> int:
    least, most = LIMITS[dtype]
    return (number - least) % (most - least + 1) + least


@form_rule(Select)
def _select(scope: Scope, expr: Select) -> Form:
    condition = scope.value(expr.cond)
    if isinstance(condition, Const):
        return scope.form(expr.then if condition.value else expr.orelse)
    with scope.assuming(condition):
        then = scope.form(expr.then)
    with scope.assuming(condition, truth=False):
        orelse = scope.form(expr.orelse)
    if then.key() == orelse.key():
        return then
    emit, (a, b), (c, d) = scope.atoms.emit, scope.atoms.range(then), scope.atoms.range(orelse)
    limits = (None if a is None or c is None else min(a, c), None if b is None or d is None else max(b, d))
    chosen = Select(condition, emit(then, expr.dtype), emit(orelse, expr.dtype), expr.dtype)
    return scope.opaque(chosen, limits)


@form_rule(Binary)
def _binary(scope: Scope, expr: Binary) -> Form:
    a, b = scope.form(expr.a), scope.form(expr.b)
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
    # What has a form that does not fit may wrap; what has none is a product or quotient of variables.
    index = result is None and rule is not None and expr.dtype == "int64"
    index = index and scope.atoms.narrow(a) and scope.atoms.narrow(b)
    return scope.opaque(Binary(expr.op, x, y, expr.dtype), _limits(scope, expr.op, a, b), index)


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
    key = structure(Binary("mul", emit(b, dtype), emit(a, dtype), dtype))
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
    return extreme(scope, "min", (*_parts(scope, "min", a), *_parts(scope, "min", b)), dtype)


def _max(scope: Scope, a: Form, b: Form, dtype: str) -> Form | None:
    return extreme(scope, "max", (*_parts(scope, "max", a), *_parts(scope, "max", b)), dtype)


def extreme(scope: Scope, op: str, candidates: tuple[Form, ...], dtype: str) -> Form:
    """The least (op min) or greatest (op max) of some forms; Wraps if one of them may not fit int64."""
    sign = 1 if op == "min" else -1
    parts: list[Form] = []
    for new in candidates:
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
