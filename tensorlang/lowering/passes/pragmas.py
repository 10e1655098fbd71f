"""What pragmas ask about unrolling: loops are copied, or marked for the target's compiler to copy."""

from __future__ import annotations

from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.ir.loops import (
    MOST_UNROLLED,
    REDUCE_TREE,
    UNROLL_EXPLICIT,
    UNROLL_FULL,
    constant_extent,
    iterations,
    with_body,
    with_kind,
)
from tensorlang.ir.stmt import AtomicUpdate, For, Kernel, LoopKind, Stmt, Store, children, map_children
from tensorlang.ir.thread_tags import VIRTUAL


@dataclass(frozen=True, slots=True)
class _Wish:
    """The most stores that copying a loop may make, and whether it is done here."""

    most: int = 0
    here: bool = True

    def below(self, loop: For) -> _Wish:
        """The wish at and below a loop that may have pragmas of its own."""
        asked = dict(loop.pragmas)
        return _Wish(int(asked.get(MOST_UNROLLED, self.most)), bool(asked.get(UNROLL_EXPLICIT, self.here)))


def unroll_as_asked(kernel: Kernel) -> Kernel:
    """Copy serial loops of constant extent, inner ones first, up to the number of stores that a pragma allows."""
    return with_body(kernel, _visit(kernel.body, _Wish()))


def _visit(stmt: Stmt, wish: _Wish) -> Stmt:
    if isinstance(stmt, For):
        wish = wish.below(stmt)
    done = map_children(stmt, lambda child: _visit(child, wish))
    if not isinstance(done, For):
        return done
    extent = constant_extent(done)
    if extent is None or done.kind not in (LoopKind.SERIAL, LoopKind.UNROLLED) or (REDUCE_TREE, 1) in done.pragmas:
        return done
    if done.kind is LoopKind.SERIAL and (_holds_loops(done.body) or extent * _stores(done.body) > wish.most):
        return done
    if not wish.here:
        return replace(with_kind(done, LoopKind.SERIAL), pragmas=(*done.pragmas, (UNROLL_FULL, 1)))
    return iterations(done, extent) if done.kind is LoopKind.SERIAL else done


def _holds_loops(stmt: Stmt) -> bool:
    """Whether a loop is left inside that will not be copied: copies of it would be no straight code."""
    if isinstance(stmt, For) and stmt.kind is not LoopKind.VECTORIZED and stmt.thread != VIRTUAL:
        return stmt.kind is not LoopKind.UNROLLED and (UNROLL_FULL, 1) not in stmt.pragmas
    return any(_holds_loops(child) for child in children(stmt))


def _stores(stmt: Stmt) -> int:
    """The stores of a body once its loops are copied."""
    if isinstance(stmt, Store | AtomicUpdate):
        return 1
    found = max(1, sum(_stores(child) for child in children(stmt)))
    if isinstance(stmt, For) and stmt.kind is not LoopKind.VECTORIZED:
        return found * (constant_extent(stmt) or 1)
    return found
