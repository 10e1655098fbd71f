"""What the body of a vector loop mentions, gathered in one pass: much is asked about it, and copies of it are many."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Call, Expr, Load, Var
from tensorlang.ir.stmt import For, Stmt, Store, children
from tensorlang.target.llvm.storage.liveness import mentions

_NONE: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Written:
    """A store, the names of the variables in its index, and whether its index reads memory."""

    store: Store
    names: frozenset[str]
    reads: bool


@dataclass(slots=True)
class Body:
    """The stores of a body, its reads with the variables in their indices, its loops, and if it calls functions."""

    stores: list[Written] = field(default_factory=list)
    reads: list[tuple[Load, frozenset[str]]] = field(default_factory=list)
    loops: list[For] = field(default_factory=list)
    calls: bool = False

    def moved(self, name: str) -> set[str]:
        """The dtypes stored, and those read from places that vary with a variable."""
        read = {load.dtype for load, names in self.reads if name in names}
        return read.union(written.store.buffer.dtype for written in self.stores)

    def has_neighbours(self, name: str) -> bool:
        """Whether several reads of one array move with a variable, and nothing loops around them."""
        read = [load.buffer.name for load, names in self.reads if name in names]
        return not self.loops and len(set(read)) < len(read)

    def visit(self, stmt: Stmt) -> None:
        """Gather what a statement mentions."""
        if isinstance(stmt, Store):
            before = len(self.reads)
            names = self._names(stmt.index)
            self.stores.append(Written(stmt, names, len(self.reads) > before))
            self._expr(stmt.value)
            return
        if isinstance(stmt, For):
            self.loops.append(stmt)
        self._names(mentions(stmt).exprs)
        for child in children(stmt):
            self.visit(child)

    def _names(self, exprs: Iterable[Expr]) -> frozenset[str]:
        return _NONE.union(*map(self._expr, exprs))

    def _expr(self, expr: Expr) -> frozenset[str]:
        """The names of the variables in an expression."""
        if isinstance(expr, Var):
            return frozenset((expr.name,))
        inside = expr.children()
        names = self._names(inside) if inside else _NONE
        if isinstance(expr, Load):
            self.reads.append((expr, names))
        elif isinstance(expr, Call):
            self.calls = True
        return names


def body_of(loop: For) -> Body:
    """What the body of a loop mentions."""
    body = Body()
    body.visit(loop.body)
    return body
