"""Marks: what is left of statements that turn out to do nothing."""

from __future__ import annotations

from tensorlang.ir.stmt import Allocate, If, Leaf, Mark, Seq, Stmt, children, map_children


def marks(stmt: Stmt) -> Stmt | None:
    """What is left of a statement that does nothing: the instances that it runs, where it runs them."""
    if isinstance(stmt, Leaf):
        return Mark(stmt.runs) if stmt.runs else None
    if isinstance(stmt, If):
        then, orelse = marks(stmt.then), None if stmt.orelse is None else marks(stmt.orelse)
        if then is None and orelse is None:
            return None
        return If(stmt.cond, then or Seq(()), orelse, stmt.is_guard)
    left = [found for child in children(stmt) if (found := marks(child)) is not None]
    if not left:
        return None
    inside = left[0] if len(left) == 1 else Seq(tuple(left))
    return inside if isinstance(stmt, Seq | Allocate) else map_children(stmt, lambda _: inside)
