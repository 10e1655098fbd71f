"""Integer variables with symbolic ranges: linear forms over them, and what follows from their ranges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TypeAlias

from tensorlang.dataclass import dataclass
from tensorlang.ir.affine import Affine, add, is_constant, scale
from tensorlang.ir.expr import Binary, Cast, Const, Expr, Select, Unary, Var, binary, rewrite, to_text, walk
from tensorlang.ir.index import to_index
from tensorlang.ir.operators import COMPARE
from tensorlang.ir.simplify import simplify
from tensorlang.ir.traverse import bounded
from tensorlang.te.operation import Read, constant

_EXACT = ("int32", "int64")  # arithmetic of axes and sizes in these counts as exact
Division: TypeAlias = Callable[[Affine, int], tuple[Affine, Affine]]


@dataclass(slots=True)
class Space:
    """Variables by name with inclusive bounds, as forms over sizes. Every other name is a size, zero or more.

    A size expression that is not linear (`n * m`) is one opaque term, named by its text.
    """

    bounds: dict[str, tuple[Affine, Affine]] = field(default_factory=dict)
    _terms: dict[str, Expr] = field(default_factory=dict)

    def declare(self, name: str, lower: Expr, extent: Expr) -> None:
        """Add the variable `lower <= name < lower + extent`."""
        low = self.size(lower)
        self.bounds[name] = low, add(add(low, self.size(extent)), {"": -1})

    def divide(self, whole: Affine, divisor: int) -> tuple[str, str]:
        """New variables that stand for the quotient and the remainder of a form; they print as what they are."""
        number, names = self.expr(whole), (f"({self.expr(whole)} // {divisor})", f"({self.expr(whole)} % {divisor})")
        self._terms |= dict(zip(names, (number // divisor, number % divisor), strict=True))
        self.bounds[names[0]] = self.quotients(whole, divisor)
        self.bounds[names[1]] = {}, {"": divisor - 1}
        return names

    def quotients(self, whole: Affine, divisor: int) -> tuple[Affine, Affine]:
        """The bounds of a form divided by a constant."""
        return self._floor(self.least(whole), divisor), self._floor(scale(self.least(scale(whole, -1)), -1), divisor)

    def _floor(self, form: Affine, divisor: int) -> Affine:
        whole = {name: count // divisor for name, count in form.items() if name and count % divisor == 0}
        rest = {name: count for name, count in form.items() if name not in whole}
        return add(whole, self.size(self.expr(rest) // divisor))

    def size(self, expr: Expr) -> Affine:
        """The form of a size expression."""
        form = self.form(expr)
        return self._opaque(expr) if form is None else form

    @bounded
    def form(self, expr: Expr, division: Division | None = None) -> Affine | None:
        """The linear form of an integer expression, or None.

        `division` gives the quotient and the remainder of a form by a constant; without it they are not linear.
        """
        if expr.dtype not in _EXACT:
            return None
        match expr:
            case Const():
                return {"": int(expr.value)} if expr.value else {}
            case Var():
                self._terms.setdefault(expr.name, expr)
                return {expr.name: 1}
            case Cast():
                return self.form(expr.value, division)
            case Unary(op="neg"):
                inner = self.form(expr.a, division)
                return None if inner is None else scale(inner, -1)
            case Binary(op="add" | "sub" | "mul" | "floordiv" | "floormod"):
                form = self._binary(expr, division)
                return self._opaque(expr) if form is None and self._is_size(expr) else form
        return self._opaque(expr) if self._is_size(expr) else None

    def _binary(self, expr: Binary, division: Division | None) -> Affine | None:
        if expr.op in ("floordiv", "floormod"):
            divisor = expr.b.value if isinstance(expr.b, Const) else 0
            if division is None or divisor <= 0 or self._is_size(expr):
                return None
            whole = self.form(expr.a, division)
            return None if whole is None else division(whole, int(divisor))[expr.op == "floormod"]
        left = self.form(expr.a, division)
        right = None if left is None else self.form(expr.b, division)
        if left is None or right is None:
            return None
        if expr.op != "mul":
            return add(left, right, 1 if expr.op == "add" else -1)
        if is_constant(right):
            return scale(left, right.get("", 0))
        return scale(right, left.get("", 0)) if is_constant(left) else None

    def _is_size(self, expr: Expr) -> bool:
        nodes = list(walk(expr))
        plain = all(isinstance(node, Var | Const | Binary | Unary | Cast) for node in nodes)
        return plain and not any(isinstance(node, Var) and node.name in self.bounds for node in nodes)

    def _opaque(self, expr: Expr) -> Affine:
        key = f"({to_text(expr)})"
        self._terms[key] = expr
        return {key: 1}

    def expr(self, form: Affine) -> Expr:
        """The expression of a form, in int64 if one of its terms is."""
        terms = sorted((c, name) for name, c in form.items() if name)
        terms.sort(key=lambda term: (term[0] < 0, term[1] not in self.bounds))
        shift = form.get("", 0)
        lead = 0 if terms and terms[0][0] > 0 else max(shift, 0)  # 7 - i, not -i + 7
        total: Expr = constant(lead)
        for count, name in terms:
            product = self._terms.get(name, Var(name)) * abs(count)
            if isinstance(total, Const) and total.value == 0:
                total = product if count > 0 else -product
            else:
                total = total + product if count > 0 else total - product
        rest = shift - lead
        return total + rest if rest >= 0 else total - (-rest)

    def sides(self, form: Affine) -> tuple[Expr, Expr]:
        """Two expressions without minus signs, of which `form` is the difference."""
        left, right = ({n: s * c for n, c in form.items() if s * c > 0} for s in (1, -1))
        return self.expr(left), self.expr(right)

    def least(self, form: Affine) -> Affine:
        """A form over sizes that is never above `form`, and equal to it at a corner of the ranges."""
        while name := next((n for n in form if n in self.bounds), None):
            count = form[name]
            form = add({n: c for n, c in form.items() if n != name}, self.bounds[name][count < 0], count)
        return form

    def nonnegative(self, form: Affine) -> bool:
        """Whether a form is zero or more all over the ranges."""
        return all(
            c >= 0 and (not n or isinstance(self._terms.get(n, Var(n)), Var)) for n, c in self.least(form).items()
        )

    def length(self, name: str) -> int | None:
        """How many values a variable has, if that is a constant."""
        low, high = self.bounds[name]
        count = add(high, low, -1)
        return count.get("", 0) + 1 if is_constant(count) else None

    @bounded
    def decide(self, condition: Expr) -> bool | None:
        """Whether a condition holds everywhere (True) or nowhere (False), if the ranges tell."""
        match condition:
            case Const():
                return bool(condition.value)
            case Unary(op="not"):
                inner = self.decide(condition.a)
                return None if inner is None else not inner
            case Binary(op="and" | "or"):
                a, b = self.decide(condition.a), self.decide(condition.b)
                settles = condition.op == "or"
                if settles in (a, b):
                    return settles
                return None if None in (a, b) else not settles
            case Binary() if condition.op in COMPARE and condition.a.dtype in _EXACT:
                return self._compare(condition)
        return None

    def _compare(self, condition: Binary) -> bool | None:
        a, b = self.form(condition.a), self.form(condition.b)
        if a is None or b is None:
            decided = self.tidy(condition)
            return bool(decided.value) if isinstance(decided, Const) else None
        rest = add(b, a, -1)
        at_most, below = self.nonnegative(rest), self.nonnegative(add(rest, {"": -1}))
        at_least, above = self.nonnegative(scale(rest, -1)), self.nonnegative(add(scale(rest, -1), {"": -1}))
        return {
            "lt": True if below else False if at_least else None,
            "le": True if at_most else False if above else None,
            "gt": True if above else False if at_most else None,
            "ge": True if at_least else False if below else None,
            "eq": True if at_most and at_least else False if below or above else None,
            "ne": False if at_most and at_least else True if below or above else None,
        }[condition.op]

    def tidy(self, expr: Expr) -> Expr:
        """The same index or condition, simplified with the ranges; an expression that reads memory stays as it is."""
        if not all(
            isinstance(n, Var | Const | Binary | Unary | Cast) and n.dtype in (*_EXACT, "bool") for n in walk(expr)
        ):
            return expr
        form = self.form(expr)
        if form is not None:
            return self.expr(form)
        ranges = {name: (_number(low), _number(high)) for name, (low, high) in self.bounds.items()}
        return rewrite(simplify(to_index(expr), ranges), self._narrow)

    def _narrow(self, node: Expr) -> Expr | None:
        """One node of index arithmetic, back from int64."""
        match node:
            case Var():
                return self._terms.get(node.name, Var(node.name))
            case Const(dtype="int64"):
                return constant(int(node.value))
            case Binary():
                return binary(node.op, node.a, node.b)
            case Unary(op="neg"):
                return -node.a
        return None

    def tidy_reads(self, expr: Expr) -> Expr:
        """The same value with tidy indices of its reads, and without choices that the ranges decide."""

        def rule(node: Expr) -> Expr | None:
            match node:
                case Read():
                    return Read(node.tensor, tuple(self.tidy(i) for i in node.index))
                case Select():
                    taken = self.decide(node.cond)
                    return None if taken is None else node.then if taken else node.orelse
            return None

        return rewrite(expr, rule)


def _number(form: Affine) -> int | None:
    return form.get("", 0) if is_constant(form) else None
