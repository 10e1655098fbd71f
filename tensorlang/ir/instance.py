"""Which instances of a schedule's statements a leaf of the loop IR runs.

Leaves carry them through every pass, so that what a target gets can be read back and compared with what was proven.
They are no part of what a leaf does: equality, text and code leave them out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Expr


@dataclass(frozen=True, slots=True)
class Instance:
    """The instance of a statement, by its number, at some values of its loops.

    `part` counts the leaves that run one instance together, as the stores of a tuple do. A leaf that does several at
    once, as one call for a tile does, runs an instance for each value of the variables `over` (name, first, behind the
    last) where the conditions hold. Threads that differ along the axes `combined` put together what each of them finds.
    `moved`: a pass declares that it runs at another time, before and after the same statements that touch its arrays.
    """

    statement: int
    values: tuple[Expr, ...]
    part: int = 0
    over: tuple[tuple[str, int, int], ...] = ()
    conditions: tuple[Expr, ...] = ()
    combined: tuple[str, ...] = ()
    moved: bool = False

    def map(self, function: Callable[[Expr], Expr]) -> Instance:
        """The instance with a function applied to its expressions."""
        values = tuple([function(v) for v in self.values])
        conditions = tuple([function(c) for c in self.conditions])
        return Instance(self.statement, values, self.part, self.over, conditions, self.combined, self.moved)


Runs: TypeAlias = tuple[Instance, ...]


def map_runs(runs: Runs, function: Callable[[Expr], Expr]) -> Runs:
    """Instances with a function applied to their expressions."""
    return tuple([instance.map(function) for instance in runs]) if runs else runs
