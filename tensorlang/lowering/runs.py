"""What a leaf of a kernel was read to run."""

from __future__ import annotations

from dataclasses import dataclass

from tensorlang.ir.expr import Expr


THEN, ORELSE = -1, -2
"""Entries of times for the branches of a test, of which an iteration runs one."""


def is_branch(entry: int | str) -> bool:
    """Whether an entry of a time is a branch of a test."""
    return isinstance(entry, int) and entry < 0


@dataclass(frozen=True, slots=True)
class Run:
    """A leaf: which statement it runs, at which values of its loops, in which loops and under which conditions.

    `time` is made of positions and loops in turn; loop names are unique within it. `threads` are the loops over threads
    each of which runs it for itself.
    """

    statement: int
    values: tuple[Expr, ...]
    loops: tuple[str, ...]
    conditions: tuple[Expr, ...]
    time: tuple[int | str, ...]
    unordered: tuple[str, ...]
    lanes: tuple[str, ...]
    gathered: tuple[str, ...] = ()
    part: int = 0
    threads: tuple[str, ...] = ()
