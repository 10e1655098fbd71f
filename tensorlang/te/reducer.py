"""Reducers: associative and commutative combiners with an identity, and the table of built-in ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Expr, Var, binary, const, to_text


@dataclass(frozen=True, slots=True)
class Reducer:
    """An associative and commutative combiner: `lhs, rhs -> result`, with its identity."""

    name: str
    lhs: tuple[Var, ...]
    rhs: tuple[Var, ...]
    result: tuple[Expr, ...]
    identity: tuple[Expr, ...]

    def text(self) -> str:
        """The name of a built-in reducer; of any other the whole definition, so that equal text is equal meaning."""
        if len(self.lhs) == 1 and self.name in BUILTIN and self == builtin(self.name, self.lhs[0].dtype):
            return self.name
        lhs, rhs, result, identity = (
            ", ".join(map(to_text, part)) for part in (self.lhs, self.rhs, self.result, self.identity)
        )
        types = ", ".join(v.dtype for v in self.lhs)
        return f"{self.name}{{{lhs}; {rhs} -> {result}; from {identity}; {types}}}"


# name -> the combiner, and the identity of a dtype. Max of floats starts at minus infinity, as NumPy's does.
BUILTIN: dict[str, tuple[Callable[[Expr, Expr], Expr], Callable[[str], int | float | bool]]] = {
    "sum": (lambda x, y: binary("add", x, y), lambda dtype: 0),
    "prod": (lambda x, y: binary("mul", x, y), lambda dtype: 1),
    "max": (lambda x, y: binary("max", x, y), lambda dtype: dtypes.limits(dtype)[0]),
    "min": (lambda x, y: binary("min", x, y), lambda dtype: dtypes.limits(dtype)[1]),
    "all": (lambda x, y: binary("and", x, y), lambda dtype: True),
    "any": (lambda x, y: binary("or", x, y), lambda dtype: False),
}


@cache
def builtin(name: str, dtype: str) -> Reducer:
    """Return the built-in reducer of that name over elements of `dtype`."""
    combine, identity = BUILTIN[name]
    x, y = Var("x", dtype), Var("y", dtype)
    return Reducer(name, (x,), (y,), (combine(x, y),), (const(identity(dtype), dtype),))
