"""How large a kernel gets: its statements, and the arrays inside it."""

from __future__ import annotations

from math import prod

from tensorlang import dtypes
from tensorlang.ir.expr import Const
from tensorlang.ir.stmt import Allocate, Kernel, walk
from tensorlang.limits import check_scratch, check_statements


def check_size(kernel: Kernel, what: str) -> None:
    """TooComplex for a kernel of too many statements; `what` has made them."""
    check_statements(sum(1 for _ in walk(kernel.body)), what)


def check_arrays(kernel: Kernel) -> None:
    """TooComplex for an array inside a kernel that no memory holds. Arrays of symbolic sizes are left to the calls."""
    for stmt in walk(kernel.body):
        if isinstance(stmt, Allocate):
            sizes = [extent.value for extent in stmt.buffer.shape if isinstance(extent, Const)]
            if len(sizes) == len(stmt.buffer.shape):
                check_scratch(stmt.buffer.name, int(prod(sizes)) * dtypes.info(stmt.buffer.dtype).bytes)
