"""The one table of math intrinsics: name, operands, result dtype, and the NumPy function that defines the value.

| family | operands | result |
|---|---|---|
| float | floats, promoted to one dtype | that dtype |
| test | one integer or float | bool (of an integer: a constant) |
| number | one integer or float | its dtype |
| bits | one integer | its dtype (popcount), int32 (clz) |
| table | an index of uint8, and 16 numbers of uint8 | uint8 |
| pattern | one float, or the unsigned integer of its width | the other of the two, with the same bits |

Floats of 16 and 8 bits are computed in float32 and rounded once; fma is not rounded to float32 before. Python literals
are weak, as in arithmetic: beside a float they take its dtype, alone they count as float32.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, Literal

import numpy as np

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.ir import numpy_math
from tensorlang.ir.expr import Call, Expr, ExprLike, as_expr, cast, const
from tensorlang.location import caller

Family = Literal["float", "test", "number", "bits", "pattern", "table"]
_OF_BITS = "_of_bits"


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """One row: `function` takes arrays or NumPy scalars of one dtype, float32 and wider; any if it is `exact`."""

    name: str
    arity: int
    family: Family
    function: Callable[..., Any]
    doc: str
    exact: bool = False

    def result(self, dtype: str) -> str:
        """The result dtype for operands of `dtype`."""
        if self.family == "test":
            return "bool"
        if self.family == "pattern":
            return dtypes.info(dtype).bits_dtype if self.name == "bits_of" else self.name.removesuffix(_OF_BITS)
        return "int32" if self.name == "clz" else dtype

    def takes(self, dtype: str) -> bool:
        """Whether operands may be of `dtype`."""
        d = dtypes.info(dtype)
        if self.family == "pattern" and self.name != "bits_of":
            return dtype == dtypes.info(self.name.removesuffix(_OF_BITS)).bits_dtype
        if self.family == "table":
            return dtype == "uint8"
        return d.is_float if self.family == "pattern" else d.kind in _ALLOWED[self.family]

    def numpy(self, *args: Any) -> Any:
        """The value for arrays or NumPy scalars of one dtype. Floating-point warnings are the caller's to silence."""
        dtype = args[0].dtype
        if self.exact or not dtypes.info(dtype.name).is_narrow_float:
            return self.function(*args)
        value = self.function(*(a.astype(np.float32) for a in args))
        return value if self.family == "test" else value.astype(dtype)


def _rows() -> tuple[Intrinsic, ...]:
    own = numpy_math
    return (
        Intrinsic("exp", 1, "float", np.exp, "e to the power x."),
        Intrinsic("exp2", 1, "float", np.exp2, "2 to the power x."),
        Intrinsic("expm1", 1, "float", np.expm1, "exp(x) - 1, exact near zero."),
        Intrinsic("log", 1, "float", np.log, "Natural logarithm."),
        Intrinsic("log2", 1, "float", np.log2, "Logarithm to base 2."),
        Intrinsic("log10", 1, "float", np.log10, "Logarithm to base 10."),
        Intrinsic("log1p", 1, "float", np.log1p, "log(1 + x), exact near zero."),
        Intrinsic("sqrt", 1, "float", np.sqrt, "Square root."),
        Intrinsic("rsqrt", 1, "float", own.rsqrt, "1 / sqrt(x)."),
        Intrinsic("sin", 1, "float", np.sin, "Sine of x radians."),
        Intrinsic("cos", 1, "float", np.cos, "Cosine of x radians."),
        Intrinsic("tan", 1, "float", np.tan, "Tangent of x radians."),
        Intrinsic("asin", 1, "float", np.arcsin, "Inverse sine, in radians."),
        Intrinsic("acos", 1, "float", np.arccos, "Inverse cosine, in radians."),
        Intrinsic("atan", 1, "float", np.arctan, "Inverse tangent, in radians."),
        Intrinsic("sinh", 1, "float", np.sinh, "Hyperbolic sine."),
        Intrinsic("cosh", 1, "float", np.cosh, "Hyperbolic cosine."),
        Intrinsic("tanh", 1, "float", np.tanh, "Hyperbolic tangent."),
        Intrinsic("asinh", 1, "float", np.arcsinh, "Inverse hyperbolic sine."),
        Intrinsic("acosh", 1, "float", np.arccosh, "Inverse hyperbolic cosine."),
        Intrinsic("atanh", 1, "float", np.arctanh, "Inverse hyperbolic tangent."),
        Intrinsic("sigmoid", 1, "float", own.sigmoid, "1 / (1 + exp(-x))."),
        Intrinsic("erf", 1, "float", own.erf, "The error function."),
        Intrinsic("floor", 1, "float", np.floor, "The largest integer that is not above x."),
        Intrinsic("ceil", 1, "float", np.ceil, "The smallest integer that is not below x."),
        Intrinsic("round", 1, "float", np.rint, "The nearest integer, halves to even."),
        Intrinsic("trunc", 1, "float", np.trunc, "x without its fraction."),
        Intrinsic("pow", 2, "float", own.power, "x to the power y."),
        Intrinsic("atan2", 2, "float", np.arctan2, "The angle of the point (y, x), given as y, x; radians."),
        Intrinsic("hypot", 2, "float", np.hypot, "sqrt(x * x + y * y) without overflow."),
        Intrinsic("copysign", 2, "float", np.copysign, "The magnitude of x with the sign of y."),
        Intrinsic("fma", 3, "float", own.fma, "a * b + c, rounded once.", exact=True),
        Intrinsic("isnan", 1, "test", np.isnan, "Whether x is not a number."),
        Intrinsic("isinf", 1, "test", np.isinf, "Whether x is an infinity."),
        Intrinsic("isfinite", 1, "test", np.isfinite, "Whether x is neither an infinity nor not a number."),
        Intrinsic("abs", 1, "number", np.abs, "Magnitude; the lowest value of a signed integer stays itself."),
        Intrinsic("popcount", 1, "bits", own.popcount, "How many bits are one."),
        Intrinsic("clz", 1, "bits", own.clz, "How many of the highest bits are zero, as int32; the width for 0."),
        Intrinsic("bits_of", 1, "pattern", own.bits_of, "The bits of a float as an unsigned integer.", exact=True),
        Intrinsic("lookup16", 17, "table", own.lookup16, "The number of 16 at the index, by its lowest four bits."),
        *(_of_bits(d) for d in dtypes.TABLE.values() if d.is_float),
    )


def _of_bits(d: dtypes.DType) -> Intrinsic:
    doc = f"The {d.name} whose bits are those of a {d.bits_dtype}."
    return Intrinsic(f"{d.name}{_OF_BITS}", 1, "pattern", lambda x: x.view(d.numpy), doc, exact=True)


TABLE: dict[str, Intrinsic] = {row.name: row for row in _rows()}

_WHOLE = ("floor", "ceil", "round", "trunc")  # integers are their own result
_ALLOWED: dict[Family, tuple[dtypes.Kind, ...]] = {
    "float": ("float",),
    "test": ("float", "int", "uint"),
    "number": ("float", "int", "uint"),
    "bits": ("int", "uint"),
    "pattern": ("float", "uint"),
    "table": ("uint",),
}
_WANTED: dict[Family, tuple[str, str]] = {
    "float": ("a float", "float32"),
    "test": ("a number", "float32"),
    "number": ("a number", "int32"),
    "bits": ("an integer", "int32"),
    "pattern": ("a float or its bits", "float32"),
    "table": ("an index of uint8", "uint8"),
}


def call(name: str, *args: ExprLike) -> Expr:
    """Build a checked intrinsic call; DefinitionError names the user's line on a wrong count or dtype."""
    row = TABLE[name]
    if len(args) != row.arity:
        raise DefinitionError(f"{name} takes {row.arity} operand{'s'[: row.arity - 1]}, got {len(args)}", caller())
    literal = (bool, int, float)
    strong = [as_expr(a).dtype for a in args if not isinstance(a, literal)]
    weak = "float32" if row.family in ("float", "test") or float in map(type, args) else "int32"
    d = dtypes.info(reduce(dtypes.promote, strong) if strong else weak)
    whole = d.is_integer and name in _WHOLE
    if not whole and d.kind not in _ALLOWED[row.family]:
        wanted, cast_to = _WANTED[row.family]
        raise DefinitionError(
            f"{name} needs {wanted}, got {d.name} ({', '.join(map(str, args))}); cast it first, "
            f"as in x.astype({cast_to!r})",
            caller(),
        )
    operands = tuple(as_expr(a, d.name) if isinstance(a, literal) else cast(a, d.name) for a in args)
    if whole:
        return operands[0]
    if d.is_integer and row.family == "test":
        return const(name == "isfinite", "bool")
    return Call(name, operands, row.result(d.name))
