"""Expressions as isl text: quasi-affine integer expressions and conditions over named variables.

Loop variables become dims `d0, d1, ...`; sizes become parameters. A size expression that is not affine
(`n*m`) becomes one opaque parameter of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Binary, Cast, Const, Expr, Unary, Var, substitute, to_text, walk
from tensorlang.ir.index import to_index
from tensorlang.ir.operators import DIVISION, ON_INTEGERS
from tensorlang.ir.simplify import simplify
from tensorlang.ir.stmt import INDEX
from tensorlang.ir.traverse import bounded

_COMPARE = {"eq": "=", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


@dataclass(slots=True)
class Namer:
    """Gives every size, or opaque size expression, its isl parameter name."""

    sizes: frozenset[str]
    parameters: dict[str, Expr] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)

    def parameter(self, expr: Expr) -> str:
        """Return the parameter of a size expression: the same one for all ways to write it that simplify alike."""
        key = to_text(expr)
        if key not in self._names:
            made = to_index(expr) if isinstance(expr, Var) else simplify(to_index(expr))
            name = self._names[key] = _parameter_name(" * ".join(sorted(_factors(made))))
            self.parameters.setdefault(name, made)
        return self._names[key]

    def is_size(self, expr: Expr) -> bool:
        """True when every variable of the expression is a size (and it has one, and reads no memory)."""
        names = [node.name for node in walk(expr) if isinstance(node, Var)]
        plain = all(isinstance(node, Var | Const | Binary | Unary | Cast) for node in walk(expr))
        return bool(names) and plain and all(name in self.sizes for name in names)

    def prefix(self) -> str:
        """`[p0, p1] -> ` with all the parameters known so far."""
        return f"[{', '.join(self.parameters)}] -> "

    def context(self) -> str:
        """Sizes are never negative, and opaque ones not below what follows from that; empty when nothing is known."""
        known = ((name, least(expr)) for name, expr in self.parameters.items())
        return " and ".join(f"{name} >= {low}" for name, low in known if low is not None)


def _factors(expr: Expr) -> list[str]:
    """The factors of a product, as text."""
    match expr:
        case Binary(op="mul"):
            return [*_factors(expr.a), *_factors(expr.b)]
        case Binary():
            return [f"({to_text(expr)})"]
    return [to_text(expr)]


def _parameter_name(text: str) -> str:
    """The same name for the same size, wherever it is used: relations made apart can be combined."""
    if text.isascii() and text.isidentifier():
        return f"n_{text}"
    return f"q_{hashlib.sha256(text.encode()).hexdigest()[:12]}"


@bounded
def least(expr: Expr, divisor: str = "") -> int | None:
    """A lower bound of an expression of sizes (the `divisor` at least 1, others at least 0), if there is one."""
    match expr:
        case Const():
            return int(expr.value)
        case Var():
            return int(expr.name == divisor)
        case Cast():
            return least(expr.value, divisor)
        case Binary(op="sub", b=Const(value=number)):
            low = least(expr.a, divisor)
            return None if low is None else low - int(number)
        case Binary(op="floordiv", b=Var(name=name)):  # a quotient by 0 is 0
            low = least(expr.a, name)
            return 0 if low is not None and low >= 0 else None
        case Binary(op="add" | "mul" | "floordiv" | "floormod" | "min" | "max"):
            a, b = least(expr.a, divisor), least(expr.b, divisor)
            if a is None or b is None:
                return None
            return a + b if expr.op == "add" else None if min(a, b) < 0 else a * b if expr.op == "mul" else 0
    return None


def _is_int(expr: Expr) -> bool:
    return dtypes.info(expr.dtype).is_integer


def is_exact(expr: Expr) -> bool:
    """Whether arithmetic does not wrap: that in int32 and int64 (te.exact writes what does in another dtype)."""
    return expr.dtype in ("int32", "int64")


@bounded
def index_text(expr: Expr, names: dict[str, str], namer: Namer) -> str | None:
    """Return an integer expression as isl text, or None when it is not quasi-affine."""
    match expr:
        case Const() if _is_int(expr):
            return str(expr.value)
        case Var():
            return names[expr.name] if expr.name in names else namer.parameter(expr) if namer.is_size(expr) else None
        case Cast() if is_exact(expr) and is_exact(expr.value):
            return index_text(expr.value, names, namer)
        case Unary() if expr.op == "neg" and is_exact(expr):
            inner = index_text(expr.a, names, namer)
            return None if inner is None else f"(-({inner}))"
        case Binary() if is_exact(expr):
            text = _binary_text(expr, names, namer)
            if text is None and namer.is_size(expr):
                return namer.parameter(expr)
            return text
    return None


def _binary_text(expr: Binary, names: dict[str, str], namer: Namer) -> str | None:
    constant = expr.b.value if isinstance(expr.b, Const) else None
    if expr.op in ("floordiv", "floormod") and (constant is None or constant <= 0):
        return None
    if expr.op == "mul" and not (isinstance(expr.a, Const) or isinstance(expr.b, Const)):
        return None
    if expr.op not in ("add", "sub", "mul", "floordiv", "floormod", "min", "max"):
        return None
    a, b = index_text(expr.a, names, namer), index_text(expr.b, names, namer)
    if a is None or b is None:
        return None
    match expr.op:
        case "add":
            return f"({a} + {b})"
        case "sub":
            return f"({a} - ({b}))"
        case "mul":
            return f"({a} * {b})" if isinstance(expr.a, Const) else f"({b} * {a})"
        case "floordiv":
            return f"floor(({a})/{constant})"
        case "floormod":
            return f"(({a}) mod {constant})"
        case _:
            return f"{expr.op}({a}, {b})"


@bounded
def condition_text(expr: Expr, names: dict[str, str], namer: Namer) -> str | None:
    """Return a condition as isl text, or None when it is not a Presburger formula over the names."""
    match expr:
        case Const():
            return "0 = 0" if expr.value else "0 = 1"
        case Unary() if expr.op == "not":
            inner = condition_text(expr.a, names, namer)
            return None if inner is None else f"not ({inner})"
        case Binary() if expr.op in ("and", "or"):
            a, b = condition_text(expr.a, names, namer), condition_text(expr.b, names, namer)
            return None if a is None or b is None else f"(({a}) {expr.op} ({b}))"
        case Binary() if expr.op in _COMPARE and _is_int(expr.a):
            a, b = index_text(expr.a, names, namer), index_text(expr.b, names, namer)
            return None if a is None or b is None else f"{a} {_COMPARE[expr.op]} {b}"
    return None


def conditions_text(conditions: Iterable[Expr], names: dict[str, str], namer: Namer) -> tuple[str, bool]:
    """Return a conjunction as isl text, and whether it is exact (conditions that isl cannot see are left out)."""
    texts = [condition_text(c, names, namer) for c in conditions]
    known = [t for t in texts if t is not None]
    return " and ".join(known) or "0 = 0", len(known) == len(texts)


def is_visible(names: dict[str, str], namer: Namer, conditions: Iterable[Expr], index: Iterable[Expr] = ()) -> bool:
    """Whether isl sees all of some conditions and indices."""
    _, exact = conditions_text(conditions, names, namer)
    return exact and all(index_text(i, names, namer) is not None for i in index)


def lexicographic(first: Sequence[str], then: Sequence[str]) -> str:
    """That one vector comes before another of the same length, in isl text."""
    equal = [f"{a} = {b}" for a, b in zip(first, then, strict=True)]
    less = [f"{a} < {b}" for a, b in zip(first, then, strict=True)]
    return " or ".join(f"({' and '.join([*equal[:k], case])})" for k, case in enumerate(less)) or "0 = 1"


def wraps_quotient(condition: Expr) -> bool:
    """True when a condition takes a remainder of a quotient or remainder: isl's loops are wrong for some of those."""
    remainders = (n for n in walk(condition) if isinstance(n, Binary) and n.op == "floormod")
    return any(isinstance(part, Binary) and part.op in DIVISION for n in remainders for part in walk(n.a))


def divides(condition: Expr) -> bool:
    """True when a condition takes a quotient or a remainder."""
    return any(isinstance(node, Binary) and node.op in DIVISION for node in walk(condition))


def dims(loops: Sequence[str]) -> dict[str, str]:
    """Names of the dims of a statement: its loops, outermost first."""
    return {name: f"d{k}" for k, name in enumerate(loops)}


def with_sizes(expr: Expr, sizes: Mapping[str, int]) -> Expr:
    """Return an expression with numbers in place of sizes."""
    return substitute(expr, {name: Const(value, INDEX) for name, value in sizes.items()})


@bounded
def evaluate(expr: Expr, values: dict[str, int]) -> int:
    """Return the value of a quasi-affine expression at a point; KeyError where it has none."""
    match expr:
        case Const():
            return int(expr.value)
        case Var():
            return values[expr.name]
        case Cast():
            return evaluate(expr.value, values)
        case Unary() if expr.op == "neg":
            return -evaluate(expr.a, values)
        case Binary():
            a, b = evaluate(expr.a, values), evaluate(expr.b, values)
            if b or expr.op not in DIVISION:
                return ON_INTEGERS[expr.op](a, b)
    raise KeyError(to_text(expr))
