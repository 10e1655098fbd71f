"""Running reductions of few long rows in pieces, so that threads and chains of operations enough have work."""

from __future__ import annotations

from math import prod

from tensorlang import dtypes
from tensorlang.schedule import Schedule
from tensorlang.schedule.rewrites.running import running_of
from tensorlang.schedules.cpu.ordered import BESIDE
from tensorlang.schedules.gpu.blocks import power_of_two
from tensorlang.target.spec import Target
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import HybridOp

_ROWS = 1 << 13
"""Rows that are work for all multiprocessors of a GPU, a thread each."""
_THREADS = 1 << 14
"""Pieces that are, too: of more elements pieces are longer."""
_SIZES = 16, 256
"""Elements of the shortest and of the longest piece on a GPU."""
_SHORT = 128
"""Elements of a row that one thread of a GPU makes as soon as three kernels."""
_LONG, _SHARED = 1 << 14, 1 << 17
"""Elements of a row that are worth several passes on a CPU: where they wait for each other some cycles, and else."""
_PIECE, _LINES = 2064, 32
"""Elements of a piece on a CPU, and by how many it may be longer: an odd number of lines, so that pieces side by side
lie in different sets of the first cache.
"""


def prepare_running(s: Schedule, name: str, target: Target) -> None:
    """Cut rows of a running reduction that are few and long in pieces, and so on a GPU what pieces make up to each."""
    op = s.program[name]
    if not isinstance(op, HybridOp) or (s.state.strict and dtypes.info(op.dtype).is_float):
        return
    axis = next((a for a in op.axes if running_of(op, a.name) is not None), None)
    extents = [extent_of(a.extent) for a in op.axes if a is not axis]
    rows = prod(n or 0 for n in extents)
    if axis is None or not rows:
        return
    length = extent_of(axis.extent)
    size = _on_gpu(rows, length) if target.can.device else _on_cpu(rows, length, op.dtype, target)
    if size:
        _, totals = s[name].running_pieces(axis.name, size)
        if length is not None and target.can.device:
            prepare_running(s, totals, target)


def _on_gpu(rows: int, length: int | None) -> int:
    """Elements of a piece for a thread; 0 where rows are many or short."""
    least, most = _SIZES
    if rows >= _ROWS or (length is not None and length < _SHORT):
        return 0
    return most if length is None else max(least, min(most, power_of_two(max(length * rows // _THREADS, 1))))


def _on_cpu(rows: int, length: int | None, dtype: str, target: Target) -> int:
    """Elements of a piece, of which some run side by side; 0 where rows do so, or where operations take one cycle.

    Pieces side by side are whole: the last one, which is not, is not among these.
    """
    waits = dtypes.info(dtype).is_float
    wanted, least = (BESIDE * target.cores, _LONG) if waits else (target.cores, _SHARED)
    if rows >= wanted or length is None or length < least:
        return 0
    return next(n for n in range(_PIECE, length, _LINES) if -(-length // n) % BESIDE or not length % n)
