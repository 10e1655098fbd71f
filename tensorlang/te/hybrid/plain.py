"""A script as plain Python: its own source, in which the words of the language are what they are on NumPy arrays."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable
from types import CodeType
from typing import Any

from tensorlang.te.hybrid.scope import MISSING, Captured
from tensorlang.te.hybrid.source import Source
from tensorlang.te.hybrid.vocabulary import Choice, Refused, Word

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


class Plain:
    """A script as a Python function of numbers and NumPy arrays. Its lines are those of the user's file.

    It is compiled when it first runs, and again when names of it have come to stand for other words.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        body = (node for statement in source.tree.body for node in ast.walk(statement))
        self._named = [node for node in body if isinstance(node, ast.Name | ast.Attribute)]
        self._words: list[Word | None] | None = None
        self._code: CodeType | None = None
        self._used: dict[str, Callable[..., Any]] = {}

    def function(self, captured: Captured) -> Callable[..., Any]:
        """The function, with the names around it as they are now."""
        words = [captured.word(node) for node in self._named]
        if self._code is None or words != self._words:
            self._code, self._used = _compiled(self._source, captured)
            self._words = words
        names = {**captured.globals, **self._used}
        exec(self._code, names)
        made: Callable[..., Any] = names["closure"](*captured.closure.values())
        return made


def _compiled(source: Source, captured: Captured) -> tuple[CodeType, dict[str, Callable[..., Any]]]:
    """Code that defines `closure`, which makes the function, and what it calls by names that no script has."""
    try:
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
        return compile(ast.fix_missing_locations(outer), source.file, "exec"), words.used
    except RecursionError:
        raise source.fault(
            source.tree,
            "an expression of this script nests too deep for Python to run it on arrays; name parts of it, in lines "
            "before, or build it",
        ) from None
