"""Which objects and bare names mean something in a script, and what."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, TypeAlias

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir import expr as ir
from tensorlang.ir.intrinsics import TABLE
from tensorlang.ir.stmt import LoopKind
from tensorlang.te import define, domain, math, reductions
from tensorlang.te.hybrid import words
from tensorlang.te.hybrid.numbers import on_numbers, reinterpreted, typed
from tensorlang.te.hybrid.values import is_number, to_dtype
from tensorlang.te.machine import reinterpret


@dataclass(frozen=True, slots=True)
class Loop:
    """A word that begins a loop."""

    kind: LoopKind
    plain: Callable[..., Any]
    constant: bool = False


@dataclass(frozen=True, slots=True)
class Maker:
    """A word that makes an array: output_tensor or allocate."""

    name: str
    plain: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Function:
    """A function of te on scalars, and the same on Python's and NumPy's numbers."""

    symbolic: Callable[..., Any]
    plain: Callable[..., Any]
    wants_float: bool


@dataclass(frozen=True, slots=True)
class Typed:
    """A word whose result has a dtype of its own: casts and constants. `weak`: it is a number of Python's."""

    symbolic: Callable[..., Any]
    plain: Callable[..., Any]
    weak: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """if_then_else: evaluates one of its branches only."""


@dataclass(frozen=True, slots=True)
class Length:
    """len: the first extent of an array."""

    plain: Callable[..., Any] = len


@dataclass(frozen=True, slots=True)
class Refused:
    """A name of classic te that scripts do not have, and what to do."""

    advice: str


Word: TypeAlias = Loop | Maker | Function | Typed | Choice | Length | Refused


_WHOLE = ("floor", "ceil", "round", "trunc")  # of an integer: itself


def _function(function: Callable[..., Any]) -> Function:
    name = function.__name__
    wants_float = name in ("exp10", "ldexp") or (name in TABLE and TABLE[name].family == "float" and name not in _WHOLE)
    return Function(function, on_numbers(function, wants_float), wants_float)


def _name(function: Callable[..., Any]) -> str:
    return function.__name__.rstrip("_")


def _cast_to(dtype: str) -> Typed:
    return Typed(lambda value: _cast(value, dtype), lambda value: typed(value, dtype))


def _cast(value: Any, dtype: Any) -> ir.Expr:
    name = dtypes.canonical(dtype)
    if isinstance(value, float) and not dtypes.info(name).is_float:
        return ir.const(typed(value, name).item(), name)
    return to_dtype(value, name)


def _const(value: Any, dtype: Any = None) -> ir.Expr:
    return ir.const(value, dtype) if is_number(value) else _cast(value, dtype or ir.as_expr(value).dtype)


def _number(make: Callable[..., ir.Const]) -> Typed:
    """A function of te that makes a constant of a dtype."""

    def plain(*args: Any) -> Any:
        made = make(*args)
        return typed(made.value, made.dtype)

    return Typed(make, plain)


_FUNCTIONS: tuple[Callable[..., Any], ...] = (
    math.abs_, math.acos, math.acosh, math.add, math.asin, math.asinh, math.atan, math.atan2, math.atanh,
    math.ceil, math.ceildiv, math.clz, math.copysign, math.cos, math.cosh, math.div, math.erf, math.exp,
    math.exp2, math.exp10, math.expm1, math.floor, math.floordiv, math.floormod, math.fma, math.fmod, math.hypot,
    math.indexdiv, math.indexmod, math.isfinite, math.isinf, math.isnan, math.ldexp, math.likely, math.log,
    math.log1p, math.log2, math.log10, math.maximum, math.minimum, math.multiply, math.popcount, math.pow_,
    math.round_, math.rsqrt, math.shift_left, math.shift_right, math.sigmoid, math.sin, math.sinh, math.sqrt,
    math.tan, math.tanh, math.trunc, math.truncdiv, math.truncmod,
    reductions.max_, reductions.min_, reductions.all_, reductions.any_,
)  # fmt: skip
_LOOP = "write a loop over the elements that adds them up"
_WHOLE_TENSOR = "a script computes element by element; declare this outside, and pass its tensor as an argument"

BARE: dict[str, Word] = {
    "range": Loop(LoopKind.SERIAL, builtins.range),
    "serial": Loop(LoopKind.SERIAL, words.serial),
    "parallel": Loop(LoopKind.PARALLEL, words.parallel),
    "vectorize": Loop(LoopKind.VECTORIZED, words.vectorize),
    "unroll": Loop(LoopKind.UNROLLED, words.unroll),
    "const_range": Loop(LoopKind.UNROLLED, words.const_range, constant=True),
    "bind": Loop(LoopKind.BOUND, words.bind),
    "output_tensor": Maker("output_tensor", words.output_tensor),
    "allocate": Maker("allocate", words.allocate),
    **{_name(function): _function(function) for function in _FUNCTIONS},
    "nearbyint": _function(math.nearbyint),
    "power": _function(math.power),
    "if_then_else": Choice(),
    "select": Choice(),
    "cast": Typed(_cast, typed),
    "reinterpret": Typed(reinterpret, reinterpreted),
    "const": Typed(_const, lambda value, dtype=None: typed(value, dtype or ir.as_expr(value).dtype)),
    "min_value": _number(math.min_value),
    "max_value": _number(math.max_value),
    "infinity": _number(math.infinity),
    **{name: _cast_to(name) for name in dtypes.TABLE},
    "int": Typed(lambda value: _cast(value, "int64"), int, weak=True),
    "float": Typed(lambda value: _cast(value, "float64"), float, weak=True),
    "len": Length(),
    "sum": Refused(_LOOP),
    "prod": Refused(_LOOP),
    "max_num_threads": Refused("how many threads run a parallel loop is left to the machine"),
    **dict.fromkeys(("compute", "placeholder", "extern", "reduce_axis"), Refused(_WHOLE_TENSOR)),
    "print": Refused("print in the Python run alone: call the script with NumPy arrays and step through it"),
}


def _meanings() -> dict[int, Word]:
    """The words by the identity of the object that a script can name for them."""
    objects: list[tuple[object, str]] = [(f, _name(f)) for f in _FUNCTIONS]
    objects += [(getattr(words, name), name) for name in words.NAMES]
    objects += [(words.range_, "range")]
    objects += [(getattr(builtins, n), n) for n in ("range", "abs", "max", "min", "round", "pow", "len", "int")]
    objects += [(getattr(builtins, n), n) for n in ("float", "bool", "sum", "print")]
    objects += [(d.numpy.type, d.name) for d in dtypes.TABLE.values()]
    objects += [(math.if_then_else, "if_then_else"), (math.select, "select"), (ir.cast, "cast"), (ir.const, "const")]
    objects += [(reinterpret, "reinterpret")]
    objects += [(math.min_value, "min_value"), (math.max_value, "max_value"), (math.infinity, "infinity")]
    objects += [(reductions.sum_, "sum"), (reductions.prod_, "prod")]
    objects += [(getattr(define, name), name) for name in ("compute", "placeholder", "extern")]
    objects += [(domain.reduce_axis, "reduce_axis")]
    return {id(thing): BARE[name] for thing, name in objects}


_MEANING = _meanings()


def meaning(thing: object) -> Word | None:
    """The word that an object stands for in a script."""
    return _MEANING.get(id(thing))
