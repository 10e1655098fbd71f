"""Functions that have one value all over a loop that is written out are called once, in front of it.

Compilers find most of these, but not where code of another kind stands between copies of the loop's body, or calls
stand in branches. What is read there are arrays of the thread that the loop does not write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Call, Expr, Load, Var, binary, to_text, variables, walk
from tensorlang.ir.simplify import proves
from tensorlang.ir.stmt import Allocate, For, Let, LoopKind, Seq, Stmt, Store, map_children
from tensorlang.ir.stmt import walk as statements
from tensorlang.lowering.device.arrays import written


def called_once(body: Stmt) -> Stmt:
    """Return the code of a thread with calls in front of the outermost unrolled loop that does not change them."""
    named: dict[str, Var] = {}

    def visit(stmt: Stmt) -> Stmt:
        if isinstance(stmt, For) and _runs_written_out(stmt):
            found = _Values(_bound(stmt), written(stmt), len(named))
            stmt = _changed(stmt, found.taken)
            named.update(found.named)
            made = map_children(stmt, visit)
            for text, var in reversed(found.named.items()):
                made = Let(var, found.values[text], made)
            return made
        return map_children(stmt, visit)

    return visit(body)


def _runs_written_out(loop: For) -> bool:
    return loop.kind is LoopKind.UNROLLED and proves(binary("lt", loop.lower, loop.upper), {})


def _bound(loop: For) -> set[str]:
    """What has a value, or is allocated, inside of a loop only."""
    inside = list(statements(loop))
    variables = {s.var.name for s in inside if isinstance(s, For | Let)}
    return variables | {s.buffer.name for s in inside if isinstance(s, Allocate)}


def _changed(stmt: Stmt, change: Callable[[Expr], Expr]) -> Stmt:
    """A statement with the values changed that it computes whenever it runs."""
    match stmt:
        case Let():
            return Let(stmt.var, change(stmt.value), _changed(stmt.body, change))
        case Store():
            return replace(stmt, value=change(stmt.value))
        case Seq() | Allocate():
            return map_children(stmt, lambda s: _changed(s, change))
        case For() if _runs_written_out(stmt):
            return replace(stmt, body=_changed(stmt.body, change))
    return stmt


@dataclass(slots=True)
class _Values:
    """Calls that do not change in a loop, by their texts: those of nothing `bound` in it, or `written` there.

    `first` is the number of the first name that is free.
    """

    bound: set[str]
    written: set[str]
    first: int
    named: dict[str, Var] = field(default_factory=dict)
    values: dict[str, Expr] = field(default_factory=dict)

    def taken(self, expr: Expr) -> Expr:
        """The expression with such calls by name."""
        if not (isinstance(expr, Call) and self._is_fixed(expr)):
            return expr.with_children(tuple(map(self.taken, expr.children()))) if expr.children() else expr
        text = to_text(expr)
        if text not in self.named:
            self.named[text], self.values[text] = Var(f"once{self.first + len(self.named)}", expr.dtype), expr
        return self.named[text]

    def _is_fixed(self, expr: Expr) -> bool:
        loads = [node.buffer for node in walk(expr) if isinstance(node, Load)]
        own = all(buffer.scope == "local" and buffer.name not in self.bound | self.written for buffer in loads)
        return own and not variables(expr) & self.bound
