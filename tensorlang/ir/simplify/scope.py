"""What the simplifier knows at one place, and the dispatch of its rules by expression class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from tensorlang.ir.expr import Binary, Const, Expr, Load, Select, Unary, Var, same, walk
from tensorlang.ir.operators import COMPARE
from tensorlang.ir.simplify.forms import FULL, LIMITS, Atom, Atoms, Form, Key, Range
from tensorlang.ir.simplify.prove import Facts, Limits
from tensorlang.ir.traverse import DEEP, children_first

INTEGER = frozenset(LIMITS)
NEGATION = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}

Rule = TypeVar("Rule", bound=Callable[..., Any])
FORM_RULES: dict[type[Expr], Callable[[Scope, Any], Form]] = {}
VALUE_RULES: dict[type[Expr], Callable[[Scope, Any], Expr]] = {}


def form_rule(kind: type[Expr]) -> Callable[[Rule], Rule]:
    """Register the rule that turns an integer expression of a class into a form."""

    def register(rule: Rule) -> Rule:
        FORM_RULES[kind] = rule
        return rule

    return register


def value_rule(kind: type[Expr]) -> Callable[[Rule], Rule]:
    """Register the rule that simplifies an expression of a class that is not an integer."""

    def register(rule: Rule) -> Rule:
        VALUE_RULES[kind] = rule
        return rule

    return register


class Place:
    """What was worked out where the same is known: simplified expressions, loop variables, and places further in.

    Copies of an unrolled body share expressions, and all of them are in one place: each expression is simplified once.
    """

    __slots__ = ("forms", "inside", "loops", "values")

    def __init__(self) -> None:
        self.forms: dict[int, tuple[Expr, Form]] = {}  # those of deep expressions
        self.values: dict[int, tuple[Expr, Expr]] = {}  # by the identity of expressions, which are kept for that
        self.loops: dict[Key, tuple[Form, Limits]] = {}
        self.inside: dict[Key, Place] = {}


class Scope:
    """What the simplifier knows at one place: variables by name, atoms, facts."""

    __slots__ = ("atoms", "count", "facts", "names", "place", "ranges", "settled")

    def __init__(self, ranges: Mapping[str, Range]) -> None:
        self.atoms = Atoms()
        self.facts = Facts(self.atoms)
        self.names: dict[str, Form] = {}
        self.ranges = ranges
        self.count = 0
        self.place = Place()
        self.settled = False
        """Whether the instances of leaves stay as they are: a guard is around, which tells nothing about them."""

    def variable(self, var: Var) -> Form:
        """What the name of a variable stands for here."""
        known = self.names.get(var.name)
        if known is None:
            known = self.names[var.name] = self.fresh(var, self.ranges.get(var.name, FULL))
        return known

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

    def enter(self, name: str, meaning: Form | None) -> Place:
        """Go where a name stands for a form (None: a variable that is no integer); return the place left."""
        left = self.place
        key: Key = name, None if meaning is None else meaning.key()
        self.place = left.inside.get(key) or left.inside.setdefault(key, Place())
        return left

    @contextmanager
    def assuming(self, condition: Expr, truth: bool = True, lasting: bool = False) -> Iterator[list[Form]]:
        """Facts of a condition hold inside; `lasting` drops those that a store could change."""
        known, place = self.facts.known, self.place
        size = len(known)
        for fact in self._facts(condition, truth):
            if not lasting or self.facts.stable(fact):
                known.append(fact)
        if len(known) > size:
            self.place = Place()
        yield known[size:]
        self.place = place
        del known[size:]

    def _facts(self, condition: Expr, truth: bool) -> Iterable[Form]:
        match condition:
            case Unary(op="not"):
                return self._facts(condition.a, not truth)
            case Binary(op="and" | "or") if (condition.op == "and") == truth:
                return [*self._facts(condition.a, truth), *self._facts(condition.b, truth)]
            case Binary() if condition.op in COMPARE and condition.a.dtype in INTEGER:
                difference = self.form(condition.a).plus(self.form(condition.b), -1)
                match condition.op if truth else NEGATION[condition.op]:
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

    def form(self, expr: Expr) -> Form:
        """The linear form of an integer expression; equal to it in value."""
        if expr.levels > DEEP:
            self._look_below(expr)
            return self.place.forms[id(expr)][1]
        rule = FORM_RULES.get(type(expr))
        return self.opaque(self.rebuilt(expr)) if rule is None else rule(self, expr)

    def value(self, expr: Expr) -> Expr:
        """The simplified expression, of the same dtype and value."""
        values = self.place.values
        known = values.get(id(expr))
        if known is None:
            if expr.levels > DEEP and not _is_integer(expr):
                self._look_below(expr)
                return values[id(expr)][1]
            known = values[id(expr)] = expr, self._simplified(expr)
        return known[1]

    def _look_below(self, expr: Expr) -> None:
        """Work out what a deep expression is made of at this place, deepest first: the rules then find it done."""
        forms, values = self.place.forms, self.place.values

        def missing(node: Expr) -> bool:
            return node.levels > DEEP and id(node) not in (forms if _is_integer(node) else values)

        for node in children_first(expr, missing, _here) if missing(expr) else ():
            if _is_integer(node):
                rule = FORM_RULES.get(type(node))
                forms[id(node)] = node, self.opaque(self.rebuilt(node)) if rule is None else rule(self, node)
            else:
                values[id(node)] = node, self._simplified(node)

    def _simplified(self, expr: Expr) -> Expr:
        if expr.dtype in INTEGER:
            return self.atoms.emit(self.form(expr), expr.dtype)
        rule = VALUE_RULES.get(type(expr))
        return self.rebuilt(expr) if rule is None else rule(self, expr)

    def rebuilt(self, expr: Expr) -> Expr:
        """The expression over simplified operands."""
        old = expr.children()
        new = tuple([self.value(child) for child in old])
        return expr if all(a is b for a, b in zip(old, new)) else expr.with_children(new)

    def opaque(self, expr: Expr, limits: Range = FULL, index: bool = False) -> Form:
        """A form of one atom: an expression that the rules do not look into.

        `index` says that it is index arithmetic, far from the limits of int64.
        """
        if isinstance(expr, Const):
            return Form({}, int(expr.value))
        key = structure(expr)
        if key not in self.atoms.table:
            low, high = limits
            least, most = LIMITS[expr.dtype]
            if (low is not None and low < least) or (high is not None and high > most):
                low, high = least, most  # it may wrap
            if not index:
                low, high = least if low is None else low, most if high is None else high
            stable = not any(isinstance(node, Load) for node in walk(expr))
            self.atoms.table[key] = Atom(expr, low, high, stable=stable)
        return Form({key: 1}, 0)


def _is_integer(expr: Expr) -> bool:
    return expr.dtype in INTEGER


def _here(expr: Expr) -> tuple[Expr, ...]:
    """The operands that are evaluated where the expression is, whatever the others come to."""
    match expr:
        case Select():
            return (expr.cond,)
        case Binary(op="and" | "or"):
            return (expr.a,)
    return expr.children()


_WHOLE = 8
"""Keys of expressions of more levels are the expressions, with the hash that they keep."""


class _Whole:
    """A deep expression as a key: tuples that nest so deep would be hashed and compared by calls that nest, too."""

    __slots__ = ("expr",)

    def __init__(self, expr: Expr) -> None:
        self.expr = expr

    def __hash__(self) -> int:
        return hash(self.expr)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Whole) and same(self.expr, other.expr)


def structure(expr: Expr) -> Key:
    """A key that two expressions share if they are the same tree."""
    if expr.levels > _WHOLE:
        return _Whole(expr)
    if isinstance(expr, Const):
        return expr.dtype, repr(expr.value)
    return type(expr).__name__, expr.dtype, expr.label(), tuple([structure(child) for child in expr.children()])
