"""The expression classes of classic te's `tvm.tir`: a call builds a checked node, `isinstance` asks for its kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorlang.errors import DefinitionError
from tensorlang.ir import expr as ir
from tensorlang.ir.expr import Const, Expr, ExprLike, Unary, binary
from tensorlang.location import caller
from tensorlang.te.math import div, select, truncmod


class NodeClass(type):
    """A kind of expression that is no class of its own here."""

    build: Callable[..., Expr]
    kind: Callable[[object], bool]

    def __call__(cls, *args: Any, **named: Any) -> Expr:
        return cls.build(*args, **named)

    def __instancecheck__(cls, instance: object) -> bool:
        return cls.kind(instance)


def _node(name: str, build: Callable[..., Expr], kind: Callable[[object], bool], doc: str) -> Any:
    members = {"build": staticmethod(build), "kind": staticmethod(kind), "__doc__": doc}
    return NodeClass(name, (), members)


def _binary(name: str, *ops: str, build: Callable[[ExprLike, ExprLike], Expr] | None = None) -> Any:
    def kind(instance: object) -> bool:
        return isinstance(instance, ir.Binary) and instance.op in ops

    def checked(a: ExprLike, b: ExprLike) -> Expr:
        return binary(ops[0], a, b)

    return _node(
        name, build or checked, kind, f"`{name}(a, b)`: {ops[0]} of two operands, which it keeps as `a` and `b`."
    )


def _literal(name: str, kinds: type | tuple[type, ...], what: str) -> Any:
    def kind(instance: object) -> bool:
        return isinstance(instance, Const) and isinstance(instance.value, kinds)

    def literal(dtype: str, value: Any) -> Const:
        return ir.const(value, dtype)

    return _node(name, literal, kind, f"`{name}(dtype, value)` is {what} constant.")


def _cast(dtype: str, value: ExprLike) -> Expr:
    return ir.cast(value, dtype)


def _not(a: ExprLike) -> Expr:
    condition = ir.as_expr(a)
    if condition.dtype != "bool":
        raise DefinitionError(f"Not needs a condition, got {condition} of dtype {condition.dtype}", caller())
    return ~condition


def _is_not(instance: object) -> bool:
    return isinstance(instance, Unary) and instance.op == "not"


Add, Sub, Mul = _binary("Add", "add"), _binary("Sub", "sub"), _binary("Mul", "mul")
Div, Mod = _binary("Div", "div", "truncdiv", build=div), _binary("Mod", "truncmod", build=truncmod)
FloorDiv, FloorMod = _binary("FloorDiv", "floordiv"), _binary("FloorMod", "floormod")
Min, Max = _binary("Min", "min"), _binary("Max", "max")
EQ, NE = _binary("EQ", "eq"), _binary("NE", "ne")
LT, LE, GT, GE = _binary("LT", "lt"), _binary("LE", "le"), _binary("GT", "gt"), _binary("GE", "ge")
And, Or = _binary("And", "and"), _binary("Or", "or")
Not = _node("Not", _not, _is_not, "`Not(a)`: whether a condition does not hold.")
Cast = _node(
    "Cast",
    _cast,
    lambda instance: isinstance(instance, ir.Cast),
    "`Cast(dtype, value)`: a value converted to a dtype.",
)
Select = _node(
    "Select",
    select,
    lambda instance: isinstance(instance, ir.Select),
    "`Select(condition, true_value, false_value)`; a branch not taken reads no memory.",
)
IntImm = _literal("IntImm", int, "an integer")
FloatImm = _literal("FloatImm", float, "a floating-point")
