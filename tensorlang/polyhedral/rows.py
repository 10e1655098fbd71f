"""Linear conditions as rows of numbers: isl takes them at once, where it needs long to read text.

What is seen, and what is left out, is as in `affine_text`. Conditions that are not conjunctions of linear ones stay
text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TypeAlias

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.affine import AT_LEAST_ZERO, add, scale
from tensorlang.ir.expr import Binary, Cast, Const, Expr, Unary, Var
from tensorlang.ir.traverse import bounded
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import Namer, condition_text, is_exact

Row: TypeAlias = dict[str, int]
"""A sum of multiples of dims and parameters, by name; the constant is under ""."""
Quotient: TypeAlias = tuple[frozenset[tuple[str, int]], int]
"""A row and what it is divided by."""


class NotLinear(Exception):
    """An expression that needs isl's own minimum or maximum."""


@dataclass(slots=True)
class Rows:
    """Conditions over `names` (variables by the dims they are), as sums that are 0, or at least 0.

    `quotients` are further dims, each a rounded quotient; `texts` hold the conditions that are no rows. `exact`: isl
    can see all conditions. `ranges` are inclusive bounds of dims that are required as well.
    """

    names: Mapping[str, str]
    namer: Namer
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    zero: list[Row] = field(default_factory=list)
    positive: list[Row] = field(default_factory=list)
    quotients: dict[Quotient, str] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    exact: bool = True

    @bounded
    def form(self, expr: Expr) -> Row | None:
        """An integer expression as a row; None when isl cannot see it. Raises NotLinear."""
        match expr:
            case Const() if dtypes.info(expr.dtype).is_integer:
                return {"": int(expr.value)} if expr.value else {}
            case Var() if expr.name in self.names:
                return {self.names[expr.name]: 1}
            case Var():
                return {self.namer.parameter(expr): 1} if self.namer.is_size(expr) else None
            case Cast() if is_exact(expr) and is_exact(expr.value):
                return self.form(expr.value)
            case Unary() if expr.op == "neg" and is_exact(expr):
                inner = self.form(expr.a)
                return None if inner is None else scale(inner, -1)
            case Binary() if is_exact(expr):
                made = self._binary(expr)
                if made is None and self.namer.is_size(expr):
                    return {self.namer.parameter(expr): 1}
                return made
        return None

    def _binary(self, expr: Binary) -> Row | None:
        divisor = expr.b.value if isinstance(expr.b, Const) else None
        match expr.op:
            case "add" | "sub":
                a, b = self.form(expr.a), self.form(expr.b)
                return None if a is None or b is None else add(a, b, 1 if expr.op == "add" else -1)
            case "mul":
                for factor, other in ((expr.a, expr.b), (expr.b, expr.a)):
                    if isinstance(factor, Const):
                        row = self.form(other)
                        return None if row is None else scale(row, int(factor.value))
                return None
            case "floordiv" | "floormod":
                if divisor is None or divisor <= 0:
                    return None
                row = self.form(expr.a)
                return None if row is None else self._divided(row, int(divisor), expr.op == "floormod")
            case "min" | "max":
                raise NotLinear
        return None

    def _divided(self, row: Row, divisor: int, remainder: bool) -> Row:
        whole = {dim: c // divisor for dim, c in row.items() if not dim or c % divisor == 0}
        part = add(row, whole, -divisor)
        if self._is_within(part, divisor):
            return part if remainder else whole
        key = frozenset(row.items()), divisor
        known = self.quotients.get(key)
        quotient = known or f"q{len(self.quotients)}"
        rest = add(row, {quotient: divisor}, -1)
        if known is None:
            self.quotients[key] = quotient
            self.positive += [rest, add({"": divisor - 1}, rest, -1)]
        return rest if remainder else {quotient: 1}

    def _is_within(self, row: Row, limit: int) -> bool:
        """Whether the ranges of its dims keep a sum at least 0 and below a limit."""
        if any(dim and dim not in self.ranges for dim in row):
            return False
        ends = [[c * end for end in self.ranges[dim]] if dim else [c] for dim, c in row.items()]
        return sum(map(min, ends)) >= 0 and sum(map(max, ends)) < limit

    def equate(self, dim: str, value: Row) -> None:
        """Require that a dim has a value."""
        self.zero.append(add(value, {dim: 1}, -1))

    def bound(self, dim: str, size: Row) -> None:
        """Require that a dim lies in an array of a size."""
        self.positive += [{dim: 1}, add(add(size, {dim: 1}, -1), {"": 1}, -1)]

    def require(self, conditions: Iterable[Expr]) -> None:
        """Require conditions, as far as isl can see them."""
        for condition in conditions:
            self._require(condition)

    def _require(self, condition: Expr) -> None:
        if isinstance(condition, Binary) and (condition.op in AT_LEAST_ZERO or condition.op == "eq"):
            known = len(self.positive), len(self.quotients)
            try:
                a, b = self.form(condition.a), self.form(condition.b)
            except NotLinear:
                a = b = None
            if a is not None and b is not None:
                if condition.op == "eq":
                    self.zero.append(add(a, b, -1))
                else:
                    factor, more = AT_LEAST_ZERO[condition.op]
                    self.positive.append(add({"": more} if more else {}, add(a, b, -1), factor))
                return
            del self.positive[known[0] :]
            for key in list(self.quotients)[known[1] :]:
                del self.quotients[key]
        text = condition_text(condition, dict(self.names), self.namer)
        if text is None:
            self.exact = False
        else:
            self.texts.append(text)

    def make(self, inputs: list[str], outputs: list[str]) -> isl.Map:
        """The map from inputs to outputs that the conditions describe; texts may use inputs only."""
        parameters = tuple(self.namer.parameters)
        columns = ["", *parameters, *inputs, *outputs, *self.quotients.values()]
        places = {column: k for k, column in enumerate(columns)}
        zero = [[(places[n], c) for n, c in row.items()] for row in self.zero]
        positive = [[(places[n], c) for n, c in row.items()] for row in self.positive]
        made = isl.map_of_rows(parameters, len(inputs), len(outputs), len(columns), zero, positive)
        if self.texts:
            where = " and ".join(f"({t})" for t in self.texts)
            made = made.intersect_domain(isl.make_set(f"{self.namer.prefix()}{{ [{', '.join(inputs)}] : {where} }}"))
        return made

    def points(self, hidden: int = 0) -> isl.Set:
        """The points of its dims that the conditions describe, without the last `hidden` dims."""
        dims = list(self.names.values())
        made = self.make(dims, []).domain()
        return made.project_out(isl.DIM.set, len(dims) - hidden, hidden) if hidden else made

    def nonnegative_sizes(self) -> None:
        """Require that no parameter is negative."""
        self.positive += [{name: 1} for name in self.namer.parameters]
