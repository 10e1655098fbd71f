"""Index expressions and conditions as text and back: `j // 32`, `k`, `j % nr`, `i < 4 and j >= 2`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import partial, reduce

from tensorlang.errors import BadArgument
from tensorlang.ir.expr import Expr, Unary, Var, as_expr, binary, to_text

_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.FloorDiv: "floordiv",
    ast.Mod: "floormod",
}
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
}


def print_index(expr: Expr) -> str:
    """Return an index expression as text; decisions stand under their names."""
    return to_text(expr).replace("@", "")


def parse_index(text: str, lookup: Callable[[str], Expr]) -> Expr:
    """Read an index expression back; BadArgument when the text is anything else."""
    try:
        return _convert(ast.parse(text, mode="eval").body, lookup)
    except (SyntaxError, KeyError, TypeError) as error:
        raise BadArgument("", f"cannot read the index expression {text!r}: {error.args[0]}") from None


def parse_condition(text: str, lookup: Callable[[str], Expr]) -> Expr:
    """Read a condition back, comparisons of index expressions joined by and, or, not; BadArgument for anything else."""
    try:
        return _condition(ast.parse(text, mode="eval").body, lookup)
    except (SyntaxError, KeyError, TypeError) as error:
        raise BadArgument("", f"cannot read the condition {text!r}: {error.args[0]}") from None


def _condition(node: ast.expr, lookup: Callable[[str], Expr]) -> Expr:
    match node:
        case ast.BoolOp():
            word = "and" if isinstance(node.op, ast.And) else "or"
            return reduce(partial(binary, word), [_condition(part, lookup) for part in node.values])
        case ast.UnaryOp(op=ast.Not()):
            return Unary("not", _condition(node.operand, lookup), "bool")
        case ast.Compare(ops=[op], comparators=[right]) if type(op) in _COMPARISONS:
            return binary(_COMPARISONS[type(op)], _convert(node.left, lookup), _convert(right, lookup))
    raise TypeError(f"{ast.unparse(node)} is not made of comparisons, and, or, not")


def _convert(node: ast.expr, lookup: Callable[[str], Expr]) -> Expr:
    match node:
        case ast.BinOp() if type(node.op) in _OPERATORS:
            return binary(_OPERATORS[type(node.op)], _convert(node.left, lookup), _convert(node.right, lookup))
        case ast.Constant(value=int(value)):
            return as_expr(value)
        case ast.Attribute():
            return lookup(ast.unparse(node))
        case ast.Name():
            return lookup(node.id)
        case ast.UnaryOp(op=ast.USub()):
            return binary("sub", 0, _convert(node.operand, lookup))
    raise TypeError(f"{ast.unparse(node)} is not made of names, whole numbers, +, -, *, // and %")


def names_lookup(
    axes: Mapping[str, Expr], decisions: Mapping[str, int], sizes: frozenset[str]
) -> Callable[[str], Expr]:
    """Look names up among axes first, then among decisions, then among sizes."""

    def lookup(name: str) -> Expr:
        if name in axes:
            return axes[name]
        if name in decisions:
            return as_expr(int(decisions[name]))
        if name in sizes:
            return Var(name)
        raise KeyError(f"{name} is neither an axis, a decision nor a size")

    return lookup
