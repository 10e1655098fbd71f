"""Arrays of threads: each thread has its own copy, so the dimensions that tell the copies apart go."""

from __future__ import annotations

from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.errors import InternalError
from tensorlang.ir.expr import Buffer, Const, Expr, Load, Unary, Var, binary, rewrite, same
from tensorlang.ir.simplify import proves, simplify
from tensorlang.ir.stmt import (
    INDEX,
    Allocate,
    AtomicUpdate,
    CallMachine,
    For,
    If,
    Let,
    Seq,
    Stmt,
    Store,
    ThreadReduce,
    View,
    map_children,
    map_exprs,
    with_buffers,
)
from tensorlang.lowering.device.arrays import used
from tensorlang.lowering.device.ranges import Ranges
from tensorlang.lowering.device.threads import ZERO
from tensorlang.te.program import unique


@dataclass(frozen=True, slots=True)
class Placed:
    """The code of threads over arrays of their own, and the arrays that a block has in common."""

    body: Stmt
    shared: tuple[Buffer, ...]


def own_arrays(stmt: Stmt, ranges: Ranges, kernel: str) -> Placed:
    """Give each thread its copy of the arrays that have one for each, and move shared arrays out.

    `ranges` are those of threads and blocks. Raises InternalError where a thread would use the copy of another.
    """
    shared: dict[str, Buffer] = {}
    others = used(stmt)

    def visit(s: Stmt) -> Stmt:
        if not isinstance(s, Allocate):
            return map_children(s, visit)
        if s.buffer.scope == "shared":
            name = s.buffer.name
            buffer = replace(s.buffer, name=unique(name, {*shared, *others})) if name in shared else s.buffer
            shared[buffer.name] = buffer
            return visit(with_buffers(s.body, lambda b: buffer if b.name == name else b))
        if s.threads:
            s = _Copies(s, ranges, kernel).own()
        return map_children(s, visit)

    body = visit(stmt)
    return Placed(body, tuple(shared.values()))


class _Copies:
    """An array with a copy for each thread, on the way to one of the thread's own."""

    def __init__(self, allocate: Allocate, ranges: Ranges, kernel: str) -> None:
        self.allocate = allocate
        self.name = allocate.buffer.name
        self.threads = allocate.threads
        self.ranges = ranges
        self.kernel = kernel
        self.first: list[Expr | None] = [None] * len(allocate.threads)
        self.buffer = replace(allocate.buffer, shape=allocate.buffer.shape[len(allocate.threads) :])

    def own(self) -> Allocate:
        """The array of one thread."""
        return Allocate(self.buffer, self._visit(self.allocate.body, ()))

    def _visit(self, stmt: Stmt, tests: tuple[Expr, ...]) -> Stmt:
        def within(s: Stmt) -> Stmt:
            return self._visit(s, tests)

        def value(expr: Expr) -> Expr:
            return self._value(expr, tests)

        match stmt:
            case If():
                unless = (*tests, Unary("not", stmt.cond, "bool"))
                orelse = None if stmt.orelse is None else self._visit(stmt.orelse, unless)
                then = self._visit(stmt.then, (*tests, stmt.cond))
                return replace(stmt, cond=value(stmt.cond), then=then, orelse=orelse)
            case For():
                return replace(stmt, lower=value(stmt.lower), upper=value(stmt.upper), body=within(stmt.body))
            case Let():
                return Let(stmt.var, value(stmt.value), within(stmt.body))
            case Seq() | Allocate():
                return map_children(stmt, within)
            case CallMachine():
                views = tuple(self._view(v, tests) for v in stmt.views)
                return replace(stmt, views=views, meaning=within(stmt.meaning))
        return self._stored(map_exprs(stmt, value), tests)

    def _stored(self, stmt: Stmt, tests: tuple[Expr, ...]) -> Stmt:
        match stmt:
            case Store() | AtomicUpdate() if stmt.buffer.name == self.name:
                return replace(stmt, buffer=self.buffer, index=self._own(stmt.index, tests))
            case ThreadReduce():
                targets = tuple(
                    (self.buffer, self._own(index, tests)) if b.name == self.name else (b, index)
                    for b, index in stmt.targets
                )
                return replace(stmt, targets=targets)
        return stmt

    def _view(self, view: View, tests: tuple[Expr, ...]) -> View:
        index = tuple(self._value(i, tests) for i in view.index)
        if view.buffer.name != self.name:
            return replace(view, index=index)
        dims = tuple(d - len(self.threads) if d >= 0 else d for d in view.dims)
        return View(self.buffer, self._own(index, tests), dims, view.steps)

    def _value(self, expr: Expr, tests: tuple[Expr, ...]) -> Expr:
        def load(node: Expr) -> Expr | None:
            if not isinstance(node, Load) or node.buffer.name != self.name:
                return None
            return Load(self.buffer, self._own(node.index, tests))

        return rewrite(expr, load)

    def _own(self, index: tuple[Expr, ...], tests: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The index in the thread's own copy."""
        for k, tag in enumerate(self.threads):
            ahead = simplify(binary("sub", index[k], Var(tag, INDEX)), self.ranges)
            first = self.first[k]
            if isinstance(ahead, Const) and (first is None or same(first, ahead)):
                self.first[k] = ahead
            elif not self._decided(binary("eq", ahead, ZERO if first is None else first), tests):
                raise InternalError(
                    f"a thread of {self.kernel} uses {self.name}[{', '.join(map(str, index))}], which is not its own: "
                    f"index {k} is not {tag}{'' if first is None else f' + {first}'}"
                )
        return index[len(self.threads) :]

    def _decided(self, equal: Expr, tests: tuple[Expr, ...]) -> bool:
        """Whether the tests around leave no other value."""
        for test in tests:
            equal = binary("or", Unary("not", test, "bool"), equal)
        return proves(equal, self.ranges)
