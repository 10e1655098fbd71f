"""isl AST expressions as int64 loop-IR expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce

from tensorlang.errors import InternalError
from tensorlang.ir.expr import Binary, Const, Expr, Select, Unary, Var, binary, cast
from tensorlang.ir.stmt import INDEX
from tensorlang.polyhedral import isl

_Op = isl.OpType
_BINARY = {
    _Op.add: "add", _Op.sub: "sub", _Op.mul: "mul", _Op.div: "floordiv", _Op.fdiv_q: "floordiv",
    _Op.pdiv_q: "floordiv", _Op.pdiv_r: "floormod", _Op.zdiv_r: "floormod", _Op.min: "min", _Op.max: "max",
    _Op.eq: "eq", _Op.le: "le", _Op.lt: "lt", _Op.ge: "ge", _Op.gt: "gt",
    _Op.and_: "and", _Op.or_: "or", _Op.and_then: "and", _Op.or_else: "or",
}  # fmt: skip


def convert(node: isl.AstExpr, names: Mapping[str, Expr]) -> Expr:
    """Return an isl AST expression with its identifiers replaced by `names`."""
    kind = node.get_type()
    if kind == isl.ExprType.int:
        return Const(isl.number(node.get_val()), INDEX)
    if kind == isl.ExprType.id:
        return names[node.get_id().get_name()]
    op = node.get_op_type()
    args = [convert(node.get_op_arg(k), names) for k in range(node.get_op_n_arg())]
    if op == _Op.minus:
        return Unary("neg", args[0], INDEX) if not isinstance(args[0], Const) else Const(-args[0].value, INDEX)
    if op in (_Op.select, _Op.cond):
        return Select(_condition(args[0]), args[1], args[2], args[1].dtype)
    if op in _BINARY:
        build: Callable[[Expr, Expr], Expr] = lambda a, b: _binary(_BINARY[op], a, b)  # noqa: E731
        return reduce(build, args)
    raise InternalError(f"isl AST operation {op} is not handled")


def _binary(op: str, a: Expr, b: Expr) -> Expr:
    if op in ("and", "or"):
        return Binary(op, _condition(a), _condition(b), "bool")
    return binary(op, a, b)


def _condition(expr: Expr) -> Expr:
    """isl writes 1 for what always holds."""
    return Const(bool(expr.value), "bool") if isinstance(expr, Const) else expr


def from_pw_aff(value: isl.PwAff, parameters: Mapping[str, Expr]) -> Expr:
    """Return a piecewise affine function of parameters only as an expression."""
    build = isl.AstBuild.from_context(value.domain().params())
    names = {name: cast(expr, INDEX) for name, expr in parameters.items()}
    return convert(build.expr_from_pw_aff(value), names)


def variable(name: str) -> Var:
    """An int64 loop variable."""
    return Var(name, INDEX)
