"""Index expressions as sums: what each variable is multiplied with, a constant, and the rest."""

from __future__ import annotations

from dataclasses import field

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Binary, Cast, Const, Expr, Load, Unary, Var, walk
from tensorlang.ir.stmt import INDEX


@dataclass(slots=True)
class Linear:
    """A sum under construction: of variables by name, and of other expressions, with their factors, and a constant."""

    names: dict[str, int] = field(default_factory=dict)
    rest: list[tuple[Expr, int]] = field(default_factory=list)
    constant: int = 0

    def add(self, expr: Expr, factor: int) -> None:
        """Add `factor` times an index expression.

        Arithmetic narrower than an index is exact, since it is proven within bounds, but for that on what memory
        holds.
        """
        match expr:
            case Const():
                self.constant += factor * int(expr.value)
            case Var():
                self.names[expr.name] = self.names.get(expr.name, 0) + factor
            case Binary(op="add" | "sub") if _is_exact(expr):
                self.add(expr.a, factor)
                self.add(expr.b, factor if expr.op == "add" else -factor)
            case Binary(op="mul", a=Const() as number, b=other) if _is_exact(expr):
                self.add(other, factor * int(number.value))
            case Binary(op="mul", a=other, b=Const() as number) if _is_exact(expr):
                self.add(other, factor * int(number.value))
            case Unary(op="neg") if _is_exact(expr):
                self.add(expr.a, -factor)
            case Cast() if _is_exact(expr) and is_index(expr.value):
                self.add(expr.value, factor)
            case _:
                self.rest.append((expr, factor))


def linear(expr: Expr) -> Linear:
    """An index expression as a sum."""
    form = Linear()
    form.add(expr, 1)
    return form


def is_index(expr: Expr) -> bool:
    """Signed and at least 32 bits wide: arithmetic that index proofs take as exact."""
    return expr.dtype in ("int32", INDEX)


def _is_exact(expr: Expr) -> bool:
    if expr.dtype == INDEX:
        return True
    return expr.dtype == "int32" and not any(isinstance(n, Load) for n in walk(expr))
