"""A script as plain Python: its own source, in which the words of the language are what they are on NumPy arrays."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable
from typing import Any

from tensorlang.te.hybrid.scope import MISSING, Captured
from tensorlang.te.hybrid.source import Source
from tensorlang.te.hybrid.vocabulary import Choice, Refused

_PREFIX = "word of te: "  # no identifier, so no name of a script


class _Words(ast.NodeTransformer):
    """Puts the functions that words stand for in the place of their names, and if-else in that of if_then_else."""

    def __init__(self, captured: Captured) -> None:
        self.captured = captured
        self.used: dict[str, Callable[..., Any]] = {}

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(self.captured.word(node.func), Choice) and len(node.args) == 3:
            test, then, orelse = (self.visit(a) for a in node.args)
            return ast.copy_location(ast.IfExp(test, then, orelse), node)
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self._word(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        made = self._word(node)
        return self.generic_visit(node) if made is node else made

    def _word(self, node: ast.Name | ast.Attribute) -> ast.AST:
        word = None if self.captured.find(node) is MISSING else self.captured.word(node)
        if word is None or isinstance(word, Choice | Refused):
            return node
        name = _PREFIX + ast.unparse(node)
        self.used[name] = word.plain
        return ast.copy_location(ast.Name(name, ast.Load()), node)


def as_python(source: Source, captured: Captured) -> Callable[..., Any]:
    """The script as a Python function of numbers and NumPy arrays. Its lines are those of the user's file."""
    try:
        return _compiled(source, captured)
    except RecursionError:
        raise source.fault(
            source.tree,
            "an expression of this script nests too deep for Python to run it on arrays; name parts of it, in lines "
            "before, or build it",
        ) from None


def _compiled(source: Source, captured: Captured) -> Callable[..., Any]:
    tree = copy.deepcopy(source.tree)
    tree.decorator_list, tree.returns = [], None
    for parameter in [*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs]:
        parameter.annotation = None
    tree.args.defaults, tree.args.kw_defaults = [], [None] * len(tree.args.kwonlyargs)
    words = _Words(captured)
    tree.body = [words.visit(s) for s in tree.body]
    # What the function took from the functions around it comes as parameters of one around it.
    outer = ast.parse(f"def closure({', '.join(captured.closure)}):\n    return {tree.name}")
    function = outer.body[0]
    assert isinstance(function, ast.FunctionDef)
    function.body.insert(0, tree)
    code = compile(ast.fix_missing_locations(outer), source.file, "exec")
    names = {**captured.globals, **words.used}
    exec(code, names)
    made: Callable[..., Any] = names["closure"](*captured.closure.values())
    return made
