"""What a thread takes from a register of another one: the shuffle of neighbouring threads."""

from __future__ import annotations

from collections.abc import Iterator

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Const, Expr, Load, Printable, to_text, walk
from tensorlang.ir.stmt import Stmt, stmt_exprs

ALWAYS = Const(True, "bool")
"""The condition of a shuffle whose value every thread uses."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Shuffle(Expr, Printable):
    """The `value` that thread `lane` has, of the `width` neighbours that this thread is one of.

    These are the threads along the first axes of the block, a power of two up to 32. All of them come here together.
    A thread uses what it gets where `wanted` holds; elsewhere the lane need not exist, and the value may be one that
    nobody has written. It stands alone as the value of a Let.
    """

    value: Load
    lane: Expr
    wanted: Expr
    width: int

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.value.dtype

    def label(self) -> tuple[object, ...]:
        return (self.width,)

    def children(self) -> tuple[Expr, ...]:
        return self.value, self.lane, self.wanted

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        value, lane, wanted = children
        assert isinstance(value, Load)
        return Shuffle(value, lane, wanted, self.width)

    def text(self) -> str:
        return f"shuffle({to_text(self.value)}, lane {to_text(self.lane)} of {self.width})"


def shuffles(stmt: Stmt) -> Iterator[Shuffle]:
    """The shuffles in a statement."""
    for expr in stmt_exprs(stmt):
        yield from (node for node in walk(expr) if isinstance(node, Shuffle))
