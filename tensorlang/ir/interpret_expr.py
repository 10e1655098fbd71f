"""Scalar expressions as Python source, for the interpreter.

Integers wrap only where interval arithmetic cannot show that they stay inside their dtype; loop variables and
sizes count as smaller than 2**40.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias

from tensorlang import dtypes
from tensorlang.errors import InternalError
from tensorlang.ir import intrinsics, scalar
from tensorlang.ir.expr import Binary, Call, Cast, Const, Expr, Load, Select, Unary, Var

Interval: TypeAlias = tuple[int, int]
_INDEX: Interval = (-(1 << 40), 1 << 40)
_NONE: Interval = (0, 0)
_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">"} | {
    "ge": ">=", "and": "and", "or": "or", "bitand": "&", "bitor": "|", "bitxor": "^"
}  # fmt: skip
_FLOAT_CALLS = {"min": "least", "max": "greatest", "truncdiv": "truncdiv_float", "truncmod": "fmod"}
_FLOAT_INFIX = {"floordiv": "//", "floormod": "%"}


class Source:
    """Names of one translated kernel: Python identifiers of variables and buffers, and the globals they use."""

    def __init__(self) -> None:
        self.globals: dict[str, Any] = dict(scalar.NAMES)
        self.variables: dict[str, str] = {}
        self.intervals: dict[str, Interval] = {}
        self.buffers: dict[str, str] = {}
        self._shared: dict[tuple[object, ...], str] = {}
        self._count = 0

    def fresh(self, name: str) -> str:
        """An identifier that was not given before, made from a name."""
        self._count += 1
        return f"{re.sub(r'[^0-9A-Za-z_]', '_', name)}_{self._count}"

    def variable(self, var: Var, of_index: bool = True) -> str:
        """A new identifier for a variable from here on; `of_index` says that int64 means an index."""
        name = self.fresh(f"v_{var.name}")
        self.variables[var.name] = name
        self.intervals[var.name] = _INDEX if of_index and var.dtype == "int64" else _limits(var.dtype)
        return name

    def buffer(self, name: str) -> str:
        """A new identifier for a buffer from here on."""
        self.buffers[name] = self.fresh(f"b_{name}")
        return self.buffers[name]

    def shared(self, key: tuple[object, ...], value: Any) -> str:
        """The identifier of a global object; equal keys share the first one."""
        if key not in self._shared:
            self._shared[key] = self.fresh("_".join(map(str, key)))
            self.globals[self._shared[key]] = value
        return self._shared[key]


def _limits(dtype: str) -> Interval:
    if dtypes.info(dtype).is_float:
        return _NONE
    low, high = dtypes.limits(dtype)
    return int(low), int(high)


def text(source: Source, expr: Expr) -> str:
    """Python source of an expression."""
    return _translate(source, expr)[0]


def extent_text(source: Source, expr: Expr) -> str:
    """Python source of an extent of scratch memory: 0 where it is below, as loops over it run not at all."""
    code, (low, _) = _translate(source, expr)
    return code if low >= 0 else f"max(0, {code})"


def _translate(source: Source, expr: Expr) -> tuple[str, Interval]:
    """Source and, for integers and bools, an interval that holds the value."""
    match expr:
        case Const():
            return _constant(source, expr)
        case Var():
            if expr.name not in source.variables:
                raise InternalError(f"the interpreter met the variable {expr.name} outside its scope")
            return source.variables[expr.name], source.intervals[expr.name]
        case Load():
            index = ", ".join(text(source, i) for i in expr.index)
            return f"{source.buffers[expr.buffer.name]}_load({index})", _limits(expr.dtype)
        case Binary():
            return _float_binary(source, expr) if _is_float(expr.a) else _integer_binary(source, expr)
        case Unary():
            return _unary(source, expr)
        case Cast():
            return _cast(source, expr)
        case Select():
            (c, _), (a, (p, q)), (b, (r, s)) = (_translate(source, e) for e in expr.children())
            return f"({a} if {c} else {b})", (min(p, r), max(q, s))
        case Call():
            return _call(source, expr)
    raise InternalError(f"the interpreter cannot evaluate {type(expr).__name__} {expr}")


def _is_float(expr: Expr) -> bool:
    return dtypes.info(expr.dtype).is_float


def _constant(source: Source, expr: Const) -> tuple[str, Interval]:
    if _is_float(expr):
        value = dtypes.info(expr.dtype).numpy.type(expr.value)
        return source.shared(("const", expr.dtype, repr(expr.value)), value), _NONE
    number = int(expr.value)
    return f"({expr.value!r})", (number, number)


def _float_binary(source: Source, expr: Binary) -> tuple[str, Interval]:
    a, b = text(source, expr.a), text(source, expr.b)
    if expr.op in _FLOAT_CALLS:
        return f"{_FLOAT_CALLS[expr.op]}({a}, {b})", _NONE
    return f"({a} {_FLOAT_INFIX.get(expr.op) or _INFIX[expr.op]} {b})", _limits(expr.dtype)


def _integer_binary(source: Source, expr: Binary) -> tuple[str, Interval]:
    (a, x), (b, y) = _translate(source, expr.a), _translate(source, expr.b)
    match expr.op:
        case "min" | "max":
            choose = min if expr.op == "min" else max
            sign = "<" if expr.op == "min" else ">"
            interval = choose(x[0], y[0]), choose(x[1], y[1])
            if isinstance(expr.a, Var | Const) and isinstance(expr.b, Var | Const):
                return f"({a} if {a} {sign} {b} else {b})", interval
            return f"{expr.op}({a}, {b})", interval
        case "floordiv" | "floormod" | "truncdiv" | "truncmod":
            return _division(expr, a, b, x, y)
        case "shl" | "shr":
            bits = dtypes.info(expr.dtype).bits
            interval = _limits(expr.dtype) if expr.op == "shr" else (-(1 << 2 * bits), 1 << 2 * bits)
            return _wrapped(f"{expr.op}({a}, {b}, {bits})", interval, expr.dtype)
        case "add":
            interval = x[0] + y[0], x[1] + y[1]
        case "sub":
            interval = x[0] - y[1], x[1] - y[0]
        case "mul":
            corners = [p * q for p in x for q in y]
            interval = min(corners), max(corners)
        case _:
            interval = _limits(expr.dtype)
    return _wrapped(f"({a} {_INFIX[expr.op]} {b})", interval, expr.dtype)


def _division(expr: Binary, a: str, b: str, x: Interval, y: Interval) -> tuple[str, Interval]:
    interval = _limits(expr.dtype)
    if expr.op == "floormod" and y[0] > 0:
        interval = 0, y[1] - 1
    # Only the lowest value over -1 leaves the range.
    overflow = expr.op in ("floordiv", "truncdiv") and x[0] <= interval[0] and y[0] <= -1 <= y[1]
    if y[0] > 0 and expr.op.startswith("floor"):
        if expr.op == "floordiv":
            interval = x[0] // y[0] if x[0] < 0 else 0, max(0, x[1] // y[0])
        return f"({a} {'//' if expr.op == 'floordiv' else '%'} {b})", interval
    called = f"{expr.op}({a}, {b})"
    return _wrapped(called, (interval[0], interval[1] + overflow), expr.dtype)


def _wrapped(code: str, interval: Interval, dtype: str) -> tuple[str, Interval]:
    low, high = _limits(dtype)
    if low <= interval[0] and interval[1] <= high:
        return code, interval
    mask = (1 << dtypes.info(dtype).bits) - 1
    if low == 0:
        return f"({code} & {mask})", (low, high)
    return f"((({code} + {-low}) & {mask}) - {-low})", (low, high)


def _unary(source: Source, expr: Unary) -> tuple[str, Interval]:
    code, (low, high) = _translate(source, expr.a)
    match expr.op:
        case "not":
            return f"(not {code})", (0, 1)
        case "invert":
            return _wrapped(f"(~{code})", (-high - 1, -low - 1), expr.dtype)
    return (f"(-{code})", _NONE) if _is_float(expr) else _wrapped(f"(-{code})", (-high, -low), expr.dtype)


def _cast(source: Source, expr: Cast) -> tuple[str, Interval]:
    code, interval = _translate(source, expr.value)
    origin, target = dtypes.info(expr.value.dtype), dtypes.info(expr.dtype)
    if origin.is_float or target.is_narrow_float:
        name = source.shared(("cast", origin.name, target.name), scalar.converter(origin.name, target.name))
        return f"{name}({code})", _limits(expr.dtype)
    if target.is_float:
        # A Python int reaches float32 through float64, which rounds twice above 2**53.
        exact = target.name == "float64" or max(-interval[0], interval[1]) <= 1 << 53
        make = target.numpy.type if exact else scalar.converter(origin.name, target.name)
        return f"{source.shared(('cast', exact or origin.name, target.name), make)}({code})", _NONE
    if target.kind == "bool":
        return f"({code} != 0)", (0, 1)
    return _wrapped(f"int({code})" if origin.kind == "bool" else code, interval, expr.dtype)


def _call(source: Source, expr: Call) -> tuple[str, Interval]:
    row = intrinsics.TABLE[expr.name]
    operand = expr.args[0].dtype
    make = dtypes.info(operand).numpy.type
    name = source.shared(("call", expr.name), row.numpy)
    args = [text(source, a) for a in expr.args]
    if _is_float(expr.args[0]):
        called = f"{name}({', '.join(args)})"
    else:
        wrap = source.shared(("make", operand), make)
        called = f"{name}({', '.join(f'{wrap}({a})' for a in args)})"
    if _is_float(expr):
        return called, _NONE
    return (f"bool({called})", (0, 1)) if expr.dtype == "bool" else (f"int({called})", _limits(expr.dtype))
