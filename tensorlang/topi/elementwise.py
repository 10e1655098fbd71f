"""The schedule of stages that compute element by element, or that have no rule of their own."""

from __future__ import annotations

from tensorlang import dtypes
from tensorlang.ir.expr import Const
from tensorlang.schedule import Schedule
from tensorlang.target.spec import Target
from tensorlang.te.operation import ComputeOp

_GRAIN = 4096  # elements of work below which a thread costs more than it brings


def schedule_elementwise(s: Schedule, name: str, target: Target) -> None:
    """Vectorize the innermost axis of a stage and run the outer ones, fused, in parallel."""
    op = s.program[name]
    if not isinstance(op, ComputeOp) or not op.axes:
        return
    lanes = target.lanes(dtypes.info(op.dtype).bits)
    *outer, inner = [axis.name for axis in op.axes]
    extents = [axis.extent.value if isinstance(axis.extent, Const) else None for axis in op.axes]
    if not outer:
        first, inner = map(str, s[name].split(inner, factor=_GRAIN, tail="peel"))
        outer = [first]
    parallel = str(s[name].fuse(*outer)) if len(outer) > 1 else outer[0]
    if not op.reduce_axes:
        _, inner = map(str, s[name].split(inner, factor=lanes, tail="peel"))
        s[name].vectorize(inner)
    elements = 1
    for extent in extents:
        elements *= _GRAIN if extent is None else int(extent)
    if elements >= _GRAIN and target.cores > 1:
        s[name].parallel(parallel)
