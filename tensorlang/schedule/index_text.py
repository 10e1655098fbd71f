"""Index expressions and conditions as text and back: `j // 32`, `k`, `j % nr`, `i < 4 and j >= 2`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import partial, reduce

from tensorlang.errors import BadArgument, DefinitionError, shown
from tensorlang.ir.expr import Expr, Unary, Var, as_expr, binary, to_text

_LONGEST = 4096
_DEEPEST = 128
_FAULTS = (SyntaxError, ValueError, KeyError, TypeError, DefinitionError, MemoryError, RecursionError)
"""What reading a text may raise: Python's parser tells of too deep ones by the last two."""
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
    """Read an index expression back; BadArgument when the text is anything else, or too long for one."""
    try:
        return _convert(_tree(text), lookup)
    except BadArgument:
        raise  # what a name that is looked up is refused for
    except _FAULTS as error:
        raise BadArgument("", f"cannot read the index expression {shown(text)}: {_reason(error)}") from None


def check_index(text: str) -> None:
    """BadArgument unless a text is an index expression, of whatever names."""
    parse_index(text, Var)


def _tree(text: str) -> ast.expr:
    """The parsed text; ValueError for one that is longer or deeper than any that a schedule needs."""
    if len(text) > _LONGEST:
        raise ValueError(f"it has {len(text)} signs, and at most {_LONGEST} are read")
    tree = ast.parse(text, mode="eval").body
    waiting: list[tuple[ast.AST, int]] = [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        if depth > _DEEPEST:
            raise ValueError(f"it has more than {_DEEPEST} operations, one in the other")
        waiting += [(child, depth + 1) for child in ast.iter_child_nodes(node)]
    return tree


def _reason(error: Exception) -> str:
    if isinstance(error, DefinitionError):
        return error.message
    return str(error.args[0]) if error.args else "it is too deep"


def parse_condition(text: str, lookup: Callable[[str], Expr]) -> Expr:
    """Read a condition back, comparisons of index expressions joined by and, or, not; BadArgument for anything else."""
    try:
        return _condition(_tree(text), lookup)
    except BadArgument:
        raise  # what a name that is looked up is refused for
    except _FAULTS as error:
        raise BadArgument("", f"cannot read the condition {shown(text)}: {_reason(error)}") from None


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
