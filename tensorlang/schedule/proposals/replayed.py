"""What stands behind `legal:` in an error: lines of Python that were run on the schedule, every step proven.

A suggestion is one line of Python on `s`, in which `...` stands for the refused step, or it is words. A line that does
not run, or proves illegal, is not shown; words are advice. Lines are read by a small evaluator of calls on a schedule
and its stages, so that no name in a program or a log can make them anything else.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Any, Protocol

from tensorlang import config
from tensorlang.dataclass import dataclass
from tensorlang.errors import Replayed, TensorlangError
from tensorlang.polyhedral import isl
from tensorlang.schedule.primitive import Decision, Primitive
from tensorlang.schedule.state import ScheduleState
from tensorlang.te.tensor_intrin import intrin

_ARITHMETIC = (
    *(ast.Lambda, ast.arguments, ast.arg, ast.List, ast.Tuple, ast.Constant, ast.Name, ast.Load),
    *(ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Compare, ast.cmpop),
)
"""Nodes of the functions that a line may hold: of indices, for transform_layout."""


class Replayable(Protocol):
    """A schedule that lines are tried on: a copy of the one whose step was refused."""

    @property
    def state(self) -> ScheduleState: ...

    def apply(self, step: Primitive) -> Any: ...

    def again(self, fresh: bool = False) -> Replayable:
        """A copy that proves each step; `fresh`: of the program as declared, without a step."""

    def name_of(self, key: Any) -> str: ...

    def __getitem__(self, key: Any) -> Any: ...


@dataclass(frozen=True)
class Refusal:
    """A refused step on a schedule that is as it was before it.

    `done`: text of steps that the asked call had taken before it was refused, and that were undone; `asked` is the
    step, or its text; `then` raises an error of ours unless what was asked works on a schedule after a line.
    """

    schedule: Replayable
    asked: Primitive | str
    done: tuple[str, ...] = ()
    then: Callable[[Any], object] | None = None

    def sorted(self, suggestions: Iterable[str]) -> Replayed:
        """The lines that run, whole, and the words; lines that fail are left out."""
        legal: list[str] = []
        advice: list[str] = []
        for text in suggestions:
            statements = parsed(text)
            if statements is None:
                advice.append(text)
            elif self._runs(statements):
                legal.append("; ".join([*self.done, *(self._text(s) for s in statements)]))
        return Replayed(tuple(dict.fromkeys(legal)), tuple(dict.fromkeys(advice)))

    def _text(self, statement: ast.stmt) -> str:
        return self._asked_text if _is_asked(statement) else ast.unparse(statement)

    @property
    def _asked_text(self) -> str:
        return self.asked if isinstance(self.asked, str) else self.asked.text()

    def _runs(self, statements: Iterable[ast.stmt]) -> bool:
        """Whether a line runs to its end, each step proven."""
        line = _Line(self.schedule.again())
        try:
            with isl.budget(config.get("budget")):
                for text in self.done:
                    line.run_all(parsed(text) or ())
                for statement in statements:
                    if not _is_asked(statement):
                        line.run(statement)
                    elif isinstance(self.asked, str):
                        line.run_all(parsed(self.asked) or ())
                    else:
                        line.schedule.apply(self.asked)
                if self.then is not None:
                    self.then(line.schedule)
        except (TensorlangError, isl.BudgetExceeded, Unreadable, KeyError):
            return False
        return True


class Unreadable(Exception):
    """A line holds something else than calls on a schedule."""


def parsed(text: str) -> list[ast.stmt] | None:
    """The statements of a line; None for words, and for forms to fill in (`factor=...`)."""
    try:
        statements = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    asked = sum(map(_is_asked, statements))
    holes = sum(isinstance(n, ast.Constant) and n.value is ... for s in statements for n in ast.walk(s))
    calls = all(_is_asked(s) or _is_call(s) for s in statements)
    return statements if statements and calls and holes == asked else None


def _is_call(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr | ast.Assign) and isinstance(statement.value, ast.Call)


def _is_asked(statement: ast.stmt) -> bool:
    """Whether a statement is `...`."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and value.value is ...


@dataclass
class _Line:
    """A line under way: the schedule `s`, and the names that the line has given."""

    schedule: Replayable
    names: dict[str, Any] = field(default_factory=dict)

    def run_all(self, statements: Iterable[ast.stmt]) -> None:
        for statement in statements:
            self.run(statement)

    def run(self, statement: ast.stmt) -> None:
        """Run one statement: a call, or one whose result gets a name."""
        match statement:
            case ast.Expr(value=ast.Call() as call):
                self.value(call)
            case ast.Assign(targets=[ast.Name(id="s")], value=value) if ast.unparse(value) == _ANEW:
                self.schedule = self.schedule.again(fresh=True)
            case ast.Assign(targets=[target], value=ast.Call() as call):
                self.bind(target, self.value(call))
            case _:
                raise Unreadable(ast.unparse(statement))

    def bind(self, target: ast.expr, value: Any) -> None:
        match target:
            case ast.Name(id=name) if name not in ("s", "te", "outputs"):
                self.names[name] = value
            case ast.Tuple(elts=elements) if isinstance(value, list | tuple) and len(value) == len(elements):
                for element, one in zip(elements, value, strict=True):
                    self.bind(element, one)
            case _:
                raise Unreadable(ast.unparse(target))

    def value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=value) if value is not ...:
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return -number
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                return [self.value(element) for element in elements]
            case ast.Name(id="s"):
                return self.schedule
            case ast.Name(id=name) if name in self.names:
                return self.names[name]
            case ast.Name(id=name) if name in self.schedule.state.decisions:
                return Decision(name, self.schedule.state.decisions[name])
            case ast.Subscript(value=ast.Name(id="s"), slice=key):
                return self.schedule[self.value(key)]
            case ast.Lambda() if all(isinstance(n, _ARITHMETIC) for n in ast.walk(node)):
                return eval(compile(ast.Expression(node), "<index>", "eval"), {"__builtins__": {}})
            case ast.Call():
                return self.call(node)
        raise Unreadable(ast.unparse(node))

    def call(self, node: ast.Call) -> Any:
        given = [self.value(a) for a in node.args]
        named = {k.arg: self.value(k.value) for k in node.keywords if k.arg is not None}
        if len(named) < len(node.keywords):
            raise Unreadable(ast.unparse(node))
        return self.function(node.func)(*given, **named)

    def function(self, node: ast.expr) -> Callable[..., Any]:
        """A public method of the schedule or of one of its stages, or te.intrin."""
        match node:
            case ast.Attribute(value=ast.Name(id="te"), attr="intrin"):
                return intrin
            case ast.Attribute(value=ast.Name(id="s") | ast.Subscript() as owner, attr=name) if name[:1] != "_":
                found = getattr(self.value(owner), name, None)
                if callable(found):
                    return found  # type: ignore[no-any-return]
        raise Unreadable(ast.unparse(node))


_ANEW = "te.create_schedule(outputs)"
