"""The source of a script: its tree with the lines of the user's file, and errors that quote them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.location import Location, caller


class ScriptError(DefinitionError):
    """A script does something that the language lacks. Names the line of the script, and quotes it."""


@dataclass(frozen=True, slots=True)
class Source:
    """A script's function, its syntax tree (line numbers of the file), and its lines from `first` on.

    `assigned`: names that the function assigns, loops and parameters included, which never mean a global. `updated`:
    parameters with elements that it assigns, in order.
    """

    function: Callable[..., Any]
    tree: ast.FunctionDef
    file: str
    first: int
    lines: tuple[str, ...]
    assigned: frozenset[str]
    updated: tuple[str, ...]

    @property
    def parameters(self) -> list[ast.arg]:
        """The parameters, in order."""
        return _parameters(self.tree)

    def where(self, node: ast.AST) -> Location:
        """The line of a node in the user's file."""
        return Location(self.file, getattr(node, "lineno", self.first))

    def fault(self, node: ast.AST, message: str) -> ScriptError:
        """The error that says `message` of a node, with its line quoted."""
        where = self.where(node)
        number = where.line - self.first
        quoted = self.lines[number].strip() if 0 <= number < len(self.lines) else ""
        return ScriptError(f"{message}\n    {quoted}", where)


def subscripted(node: ast.expr) -> ast.expr:
    """What `A[i][j]` indexes: `A`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


def _parameters(tree: ast.FunctionDef) -> list[ast.arg]:
    return [*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs]


def _assigned(tree: ast.FunctionDef) -> frozenset[str]:
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return frozenset(names | {a.arg for a in _parameters(tree)})


def _updated(tree: ast.FunctionDef) -> tuple[str, ...]:
    stored = {
        root.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
        if isinstance(root := subscripted(node), ast.Name)
    }
    return tuple(a.arg for a in _parameters(tree) if a.arg in stored)


def read_source(function: Callable[..., Any]) -> Source:
    """Find and parse the source of a function."""
    if not inspect.isfunction(function):
        raise DefinitionError(f"te.hybrid.script takes a Python function, got {function!r}", caller())
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        raise DefinitionError(
            f"the source of {function.__name__} cannot be found; define the script in a file or a notebook cell",
            caller(),
        ) from None
    file, text = function.__code__.co_filename, "".join(lines)
    # An indented function is parsed as the body of a block, so that strings over several lines stay as they are.
    indented = lines[0][:1].isspace()
    try:
        tree = ast.parse("if True:\n" + text if indented else text).body[0]
    except (RecursionError, MemoryError):
        raise DefinitionError(
            f"an expression of {function.__name__} nests too deep for Python's parser; name parts of it, in lines "
            "before",
            Location(file, first),
        ) from None
    if isinstance(tree, ast.If):
        tree = tree.body[0]
    ast.increment_lineno(tree, first - 1 - indented)
    if not isinstance(tree, ast.FunctionDef):
        where = Location(file, first)
        raise DefinitionError(f"a script is a function declared with def, got {text.strip()!r}", where)
    return Source(function, tree, file, first, tuple(lines), _assigned(tree), _updated(tree))
