"""Proofs that a linear form is never negative, from ranges, loop bounds and conditions known to hold."""

from __future__ import annotations

from typing import TypeAlias

from tensorlang.ir.simplify.forms import Atoms, Bound, Form, Key

FUEL = 32
OPPOSITE = {"min": "max", "max": "min"}
Limits: TypeAlias = tuple[tuple[Form, ...], tuple[Form, ...]]
"""Lower and upper bounds of a variable, inclusive."""


class Facts:
    """What holds at one place: symbolic bounds of variables, and forms that are not negative."""

    __slots__ = ("atoms", "bounds", "fuel", "known")

    def __init__(self, atoms: Atoms) -> None:
        self.atoms = atoms
        self.bounds: dict[Key, Limits] = {}
        self.known: list[Form] = []
        self.fuel = 0

    def nonnegative(self, form: Form) -> bool:
        """Whether `form >= 0` is proven."""
        self.fuel = FUEL
        return self._prove(form)

    def stable(self, form: Form) -> bool:
        """Whether a fact about this form outlives the statements in between."""
        table = self.atoms.table
        return all(table[key].stable for key in form.terms)

    def alternatives(self, form: Form, made: str) -> tuple[Form, ...]:
        """The forms of which `form` is the `made`, min or max: those of the minima and maxima in it, distributed."""
        for key, c in form.terms.items():
            atom = self.atoms.table[key]
            if atom.made == (made if c > 0 else OPPOSITE[made]):
                rest = form.without(key)
                return tuple(f for part in atom.parts for f in self.alternatives(rest.plus(part, c), made))
        return (form,)

    def _prove(self, form: Form) -> bool:
        low = self.atoms.range(form)[0]
        if low is not None and low >= 0:
            return True
        if not form.terms or self.fuel <= 0:
            return False
        self.fuel -= 1
        if self.known and any(self._implied(form, fact) for fact in self.known):
            return True
        return self._eliminate(form)

    def _implied(self, form: Form, fact: Form) -> bool:
        """Whether `form` is a positive multiple of a fact and something that is not negative."""
        for key, c in fact.terms.items():
            factor = form.terms.get(key, 0) // c
            if factor > 0:
                low = self.atoms.range(form.plus(fact, -factor))[0]
                return low is not None and low >= 0
        return False

    def pinned(self, facts: list[Form]) -> dict[Key, int]:
        """The variables of which these facts and their ranges leave one value, and that value."""
        limits: dict[Key, tuple[Bound, Bound]] = {}
        for fact in facts:
            if len(fact.terms) != 1:
                continue
            ((key, c),) = fact.terms.items()
            low, high = limits.get(key) or self.atoms.range(Form({key: 1}, 0))
            if c > 0:
                low = -(fact.const // c) if low is None else max(low, -(fact.const // c))
            else:
                high = fact.const // -c if high is None else min(high, fact.const // -c)
            limits[key] = low, high
        return {key: low for key, (low, high) in limits.items() if low is not None and low == high}

    def _eliminate(self, form: Form) -> bool:
        """Replace one atom by its symbolic bounds and go on; composite atoms first, then the innermost variable."""
        table = self.atoms.table
        choice: Key = None
        for key in form.terms:
            made = table[key].made
            if made in ("div", "min", "max"):
                choice = key
                break
            if key in self.bounds and (choice is None or self._depth(key) > self._depth(choice)):
                choice = key
        if choice is None:
            return False
        c = form.terms[choice]
        atom, rest = table[choice], form.without(choice)
        match atom.made:
            case "div":
                if c % atom.divisor:
                    return False
                slack = 1 - atom.divisor if c > 0 else 0
                return self._prove(rest.plus(atom.parts[0].shifted(slack), c // atom.divisor))
            case "min" | "max":
                every = all if (atom.made == "min") == (c > 0) else any
                return every(self._prove(rest.plus(part, c)) for part in atom.parts)
        lower, upper = self.bounds[choice]
        return any(self._prove(rest.plus(bound, c)) for bound in (lower if c > 0 else upper))

    def _depth(self, key: Key) -> int:
        return list(self.bounds).index(key)
