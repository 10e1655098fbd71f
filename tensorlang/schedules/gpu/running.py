"""Running reductions of few long rows on a GPU: in pieces, so that threads enough have work."""

from __future__ import annotations

from math import prod

from tensorlang import dtypes
from tensorlang.schedule import Schedule
from tensorlang.schedule.rewrites.running import running_of
from tensorlang.schedules.gpu.blocks import power_of_two
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import HybridOp

_ROWS = 1 << 13
"""Rows that are work for all multiprocessors, a thread each."""
_THREADS = 1 << 14
"""Pieces that are, too: of more elements pieces are longer."""
_SIZES = 16, 256
"""Elements of the shortest and of the longest piece."""
_SHORT = 128
"""Elements of a row that one thread makes as soon as three kernels."""


def prepare_running(s: Schedule, name: str) -> None:
    """Cut rows of a running reduction that are few and long in pieces, and so what pieces make up to each."""
    op = s.program[name]
    if not isinstance(op, HybridOp) or (s.state.strict and dtypes.info(op.dtype).is_float):
        return
    axis = next((a for a in op.axes if running_of(op, a.name) is not None), None)
    rows = [extent_of(a.extent) for a in op.axes if a is not axis]
    if axis is None or None in rows or prod(n or 0 for n in rows) not in range(1, _ROWS):
        return
    length = extent_of(axis.extent)
    if length is not None and length < _SHORT:
        return
    least, most = _SIZES
    wanted = most if length is None else length * prod(n or 0 for n in rows) // _THREADS
    _, totals = s[name].running_pieces(axis.name, max(least, min(most, power_of_two(max(wanted, 1)))))
    if length is not None:
        prepare_running(s, totals)
