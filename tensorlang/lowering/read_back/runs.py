"""What a leaf of a kernel was read to run."""

from __future__ import annotations

from dataclasses import field
from functools import cached_property
from typing import TypeAlias

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Expr
from tensorlang.ir.stmt import Seq, Stmt
from tensorlang.polyhedral.statement import Bounds, constant_bounds

Place: TypeAlias = tuple[int | str, ...]
"""A place in the code: positions in rows of statements, and loops."""


def branch(number: int) -> int:
    """The entry of a time for one of several things between which there is no order: branches, or parts of a leaf."""
    return -1 - number


def is_branch(entry: int | str) -> bool:
    """Whether an entry of a time is one of several between which there is no order."""
    return isinstance(entry, int) and entry < 0


@dataclass(frozen=True)
class Run:
    """A leaf: which statement it runs, at which values of its loops, in which loops and under which conditions.

    `time` is made of positions and loops in turn; loop names are unique within it. `threads` are the loops over threads
    each of which runs it for itself. `moved`: as `Instance` has it; `leaf` is the statement. `allocated` are the arrays
    that are made around it, each with the place in the code where it is, without loops that run in any order.
    """

    statement: int
    values: tuple[Expr, ...]
    loops: tuple[str, ...]
    conditions: tuple[Expr, ...]
    time: Place
    unordered: tuple[str, ...]
    lanes: tuple[str, ...]
    gathered: tuple[str, ...] = ()
    part: int = 0
    threads: tuple[str, ...] = ()
    moved: bool = False
    leaf: Stmt = field(default=Seq(()), repr=False)
    allocated: tuple[tuple[str, Place], ...] = ()

    @cached_property
    def bounds(self) -> Bounds:
        """The constant bounds of its loops."""
        return constant_bounds(self.conditions, self.loops)
