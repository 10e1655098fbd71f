"""Quotients and remainders of linear forms by positive constants, and their recombination.

All functions take exact forms; those that build a quotient or remainder raise `Wraps` when its operand may
not fit int64.
"""

from __future__ import annotations

from math import gcd

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Binary, Const
from tensorlang.ir.simplify.forms import LIMITS, Atom, Atoms, Form


class Wraps(ArithmeticError):
    """A rewritten operand may not fit int64; the caller keeps the expression as it is."""


def quotient(atoms: Atoms, form: Form, divisor: int, dtype: str) -> Form:
    """`floor(form / divisor)`, `divisor > 0`."""
    if _falls(form):
        return quotient(atoms, _mirrored(form), divisor, dtype).scaled(-1).shifted(-1)
    whole: dict[object, int] = {}
    rest: dict[object, int] = {}
    for key, c in form.terms.items():
        q, r = divmod(c, divisor)
        if r:
            rest[key] = c
        else:
            whole[key] = q
    q, r = divmod(form.const, divisor)
    return Form(whole, q).plus(_proper_quotient(atoms, Form(rest, r), divisor, dtype))


def _falls(form: Form) -> bool:
    """Whether all terms of a form have negative coefficients."""
    return bool(form.terms) and all(c < 0 for c in form.terms.values())


def _mirrored(form: Form) -> Form:
    """`-1 - form`, whose quotient and remainder count from the other end: those of `form` follow, by any divisor."""
    return form.scaled(-1).shifted(-1)


def _proper_quotient(atoms: Atoms, form: Form, divisor: int, dtype: str) -> Form:
    """The quotient of a form none of whose terms is a multiple of the divisor; its constant is below it."""
    known = _constant_quotient(atoms, form, divisor)
    if known is not None:
        return Form({}, known)
    coarse = _coarse_part(atoms, form, divisor)
    if coarse is not None:
        large, _, step = coarse
        reduced = Form({k: c // step for k, c in large.terms.items()}, large.const // step)
        return quotient(atoms, reduced, divisor // step, dtype)
    if len(form.terms) == 1:
        ((key, c),) = form.terms.items()
        atom = atoms.table[key]
        if c == 1 and atom.made == "div":
            inner = atom.parts[0].shifted(form.const * atom.divisor)
            return quotient(atoms, inner, divisor * atom.divisor, dtype)
    return _atom(atoms, "div", form, divisor, dtype)


def _constant_quotient(atoms: Atoms, form: Form, divisor: int) -> int | None:
    low, high = atoms.range(form)
    if low is None or high is None or low // divisor != high // divisor:
        return None
    return low // divisor


def _coarse_part(atoms: Atoms, form: Form, divisor: int) -> tuple[Form, Form, int] | None:
    """Split a form into multiples of the largest step > 1 that divides the divisor, and a rest in `[0, step)`."""
    steps = {gcd(c, divisor) for c in form.terms.values()} - {1}
    for step in sorted(steps, reverse=True):
        large = {k: c for k, c in form.terms.items() if c % step == 0}
        small = Form({k: c for k, c in form.terms.items() if c % step}, form.const % step)
        low, high = atoms.range(small)
        if low is not None and high is not None and low >= 0 and high < step:
            return Form(large, form.const - form.const % step), small, step
    return None


def remainder(atoms: Atoms, form: Form, divisor: int, dtype: str) -> Form:
    """`form mod divisor`, `divisor > 0`; the result is in `[0, divisor)`."""
    if _falls(form):
        return remainder(atoms, _mirrored(form), divisor, dtype).scaled(-1).shifted(divisor - 1)
    terms: dict[object, int] = {}
    for key, c in form.terms.items():
        r = c % divisor if c > 0 else -(-c % divisor)
        if r:
            terms[key] = r
    return _proper_remainder(atoms, Form(terms, form.const % divisor), divisor, dtype)


def _proper_remainder(atoms: Atoms, form: Form, divisor: int, dtype: str) -> Form:
    known = _constant_quotient(atoms, form, divisor)
    if known is not None:
        return form.shifted(-known * divisor)
    coarse = _coarse_part(atoms, form, divisor)
    if coarse is not None:
        large, small, step = coarse
        reduced = Form({k: c // step for k, c in large.terms.items()}, large.const // step)
        return remainder(atoms, reduced, divisor // step, dtype).scaled(step).plus(small)
    for key, c in form.terms.items():
        atom = atoms.table[key]
        if atom.made == "mod" and atom.divisor % divisor == 0:
            return remainder(atoms, form.without(key).plus(atom.parts[0], c), divisor, dtype)
    return _atom(atoms, "mod", form, divisor, dtype)


def _atom(atoms: Atoms, made: str, form: Form, divisor: int, dtype: str) -> Form:
    """A form of one new quotient or remainder, in the narrowest of `dtype` and int64 that holds its operand."""
    key = (made, form.key(), divisor)
    if key not in atoms.table:
        low, high = atoms.range(form)
        if made == "div":
            low, high = (None if b is None else b // divisor for b in (low, high))
        else:
            low, high = 0, divisor - 1
        width = dtype if divisor <= LIMITS[dtype][1] and atoms.fits(form, dtype) else "int64"
        if not atoms.fits(form, width):
            raise Wraps
        op = "floordiv" if made == "div" else "floormod"
        expr = Binary(op, atoms.emit(form, width), Const(divisor, width), width)
        stable = all(atoms.table[k].stable for k in form.terms)
        atoms.table[key] = Atom(expr, low, high, made, (form,), divisor, stable)
        atoms.division = True
    return Form({key: 1}, 0)


def recombined(atoms: Atoms, form: Form, dtype: str) -> Form:
    """Replace `divisor * (f // divisor) + f % divisor` by `f`, wherever the form holds both.

    And two digits `divisor * (f // divisor % n) + f % divisor` by `f % (divisor * n)`; and all quotients
    `f // n + (f + 1) // n + ... + (f + n - 1) // n` by `f` (Hermite's identity), and `f` less all of
    these but one by the last.
    """
    for key, c in form.terms.items():
        digit = _digit(atoms, key)
        if digit is None or c % digit.divisor:
            continue
        factor = c // digit.divisor
        part = remainder(atoms, digit.of, digit.divisor, dtype).scaled(factor)
        if part.terms and all(form.terms.get(k) == n for k, n in part.terms.items()):
            whole = digit.of if digit.count is None else remainder(atoms, digit.of, digit.divisor * digit.count, dtype)
            merged = form.without(key).plus(part, -1).plus(whole, factor)
            return recombined(atoms, merged, dtype)
    return _summed_quotients(atoms, form, dtype)


def _summed_quotients(atoms: Atoms, form: Form, dtype: str) -> Form:
    """Replace the quotients of all residues by what they sum up to, and that less all of them but one by the last."""
    for key, c in form.terms.items():
        atom = atoms.table[key]
        if atom.made != "div" or atom.divisor > len(form.terms) + 1:
            continue
        of = Form(atom.parts[0].terms, 0)
        parts = [("div", of.shifted(residue).key(), atom.divisor) for residue in range(atom.divisor)]
        factors = [form.terms.get(part, 0) for part in parts]
        absent = [residue for residue, factor in enumerate(factors) if factor * c <= 0]
        least = min((factor for factor in factors if factor * c > 0), key=abs)
        if len(absent) > 1 or (absent and any(form.terms.get(k, 0) != -least * n for k, n in of.terms.items())):
            continue
        for residue, part in enumerate(parts):
            if residue not in absent:
                form = form.plus(Form({part: 1}, 0), -least)
        form = form.plus(of, least)
        if absent:
            form = form.plus(quotient(atoms, of.shifted(absent[0]), atom.divisor, dtype), -least)
        return _summed_quotients(atoms, form, dtype)
    return form


@dataclass(frozen=True, slots=True)
class _Digit:
    """`of // divisor`, or `of // divisor % count`."""

    of: Form
    divisor: int
    count: int | None = None


def _digit(atoms: Atoms, key: object) -> _Digit | None:
    """The digit that an atom is, if it is one."""
    atom = atoms.table[key]
    if atom.made == "div":
        return _Digit(atom.parts[0], atom.divisor)
    if atom.made != "mod":
        return None
    (upper,) = atom.parts
    for inner, c in upper.terms.items():
        part = atoms.table[inner]
        if part.made == "div" and c == 1:
            of = upper.without(inner).scaled(part.divisor).plus(part.parts[0])
            return _Digit(of, part.divisor, atom.divisor)
    return None
