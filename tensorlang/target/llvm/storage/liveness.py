"""When the buffers of a function hold values: those that never do at the same time may have the same memory.

Statements are numbered in order. A buffer lives from the first statement that mentions it to the last one, and through
the whole of every loop inside its allocation that mentions it, since the next iteration may find what this one left.
"""

from __future__ import annotations

from dataclasses import field
from itertools import count

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Buffer, Expr, Load, walk
from tensorlang.ir.stmt import (
    Allocate,
    AtomicUpdate,
    CallMachine,
    CallPython,
    For,
    If,
    Let,
    Prefetch,
    Stmt,
    Store,
    children,
)
from tensorlang.ir.stmt import walk as statements

Span = tuple[int, int]
"""The first and the last statement of a life."""


@dataclass(frozen=True, slots=True)
class Mentions:
    """What a statement itself mentions, without the statements in it."""

    buffers: tuple[Buffer, ...] = ()
    exprs: tuple[Expr, ...] = ()

    @property
    def names(self) -> set[str]:
        """The names of all buffers that are read or written."""
        loads = {n.buffer.name for e in self.exprs for n in walk(e) if isinstance(n, Load)}
        return loads | {b.name for b in self.buffers}


def mentions(stmt: Stmt) -> Mentions:
    """The buffers and expressions of one statement."""
    match stmt:
        case Store() | AtomicUpdate():
            return Mentions((stmt.buffer,), (*stmt.index, stmt.value))
        case Prefetch():
            return Mentions((stmt.buffer,), stmt.index)
        case For():
            return Mentions(exprs=(stmt.lower, stmt.upper))
        case If():
            return Mentions(exprs=(stmt.cond,))
        case Let():
            return Mentions(exprs=(stmt.value,))
        case Allocate():
            return Mentions(exprs=stmt.buffer.shape)
        case CallPython():
            return Mentions(stmt.buffers)
        case CallMachine():
            return Mentions(tuple(v.buffer for v in stmt.views), tuple(i for v in stmt.views for i in v.index))
        case _:
            return Mentions()


def lives(body: Stmt) -> dict[str, Span]:
    """The lives of the buffers allocated in a body, by name."""
    reader = _Reader()
    reader.visit(body)
    return reader.found


@dataclass
class _Reader:
    """Numbers the statements; `found` are the lives of buffers whose allocation has ended."""

    found: dict[str, Span] = field(default_factory=dict)
    numbers: count[int] = field(default_factory=count)

    def visit(self, stmt: Stmt) -> dict[str, Span]:
        """The spans, within a statement, of the buffers that it mentions and does not allocate."""
        first = next(self.numbers)
        spans = dict.fromkeys(mentions(stmt).names, (first, first))
        if isinstance(stmt, CallMachine):
            self._inside_code(stmt, first)
            return spans
        for child in children(stmt):
            for name, span in self.visit(child).items():
                spans[name] = _hull(spans.get(name, span), span)
        if isinstance(stmt, For):
            last = next(self.numbers)
            spans = dict.fromkeys(spans, (first, last))
        if isinstance(stmt, Allocate):
            self._ends(stmt.buffer.name, spans.pop(stmt.buffer.name, (first, first)))
        return spans

    def _inside_code(self, stmt: CallMachine, number: int) -> None:
        for inner in statements(stmt.code.body):
            if isinstance(inner, Allocate):
                self._ends(inner.buffer.name, (number, number))

    def _ends(self, name: str, span: Span) -> None:
        # A buffer that is allocated in several places, as copies of loops do, lives from the first to the last.
        self.found[name] = _hull(self.found.get(name, span), span)


def _hull(a: Span, b: Span) -> Span:
    return min(a[0], b[0]), max(a[1], b[1])
