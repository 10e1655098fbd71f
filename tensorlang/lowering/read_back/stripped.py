"""Kernels as targets get them: without the instances that their leaves run, once these have been compared."""

from __future__ import annotations

from dataclasses import replace

from tensorlang.ir.simplify.conditions import negated
from tensorlang.ir.stmt import (
    Allocate,
    CallMachine,
    For,
    If,
    Kernel,
    Launch,
    Leaf,
    Let,
    Mark,
    Seq,
    Stmt,
    children,
    map_children,
    walk,
)


def stripped(kernel: Kernel) -> Kernel:
    """Return the kernel without instances, and without loops and tests that hold nothing else."""
    return replace(kernel, body=_stripped(kernel.body) or Seq(()))


def _stripped(stmt: Stmt) -> Stmt | None:
    if not any(isinstance(s, Mark) for s in walk(stmt)):
        return _plain(stmt)
    match stmt:
        case Mark():
            return None
        case Seq():
            kept = [done for child in stmt.body if (done := _stripped(child)) is not None]
            return (kept[0] if len(kept) == 1 else Seq(tuple(kept))) if kept else None
        case If():
            then, orelse = _stripped(stmt.then), None if stmt.orelse is None else _stripped(stmt.orelse)
            if then is None:
                return None if orelse is None else If(negated(stmt.cond), orelse)
            return If(stmt.cond, then, orelse)
        case For() | Let() | Allocate():
            body = _stripped(stmt.body)
            return None if body is None else map_children(stmt, lambda _: body)
    return _plain(stmt)


def _plain(stmt: Stmt) -> Stmt:
    if isinstance(stmt, Launch):
        kernel = stmt.kernel
        return replace(stmt, kernel=replace(kernel, body=_stripped(kernel.body) or Seq(())))
    if children(stmt) and not isinstance(stmt, CallMachine):
        return map_children(stmt, _plain)
    return replace(stmt, runs=()) if isinstance(stmt, Leaf) and stmt.runs else stmt
