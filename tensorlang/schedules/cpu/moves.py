"""Stages that move data: pieces side by side, and matrices turned around."""

from __future__ import annotations

from tensorlang import dtypes
from tensorlang.schedule import Schedule
from tensorlang.schedules.anchor import Anchor
from tensorlang.schedules.cpu.points import run_in_parallel, schedule_elementwise
from tensorlang.target.spec import Target
from tensorlang.te.operation import ComputeOp
from tensorlang.te.tags import CUTS, FROM

_TILE = 4
"""Vectors along the side of a tile that is turned around."""


def schedule_pieces(s: Schedule, anchor: Anchor) -> None:
    """Run along memory piece by piece: where a row comes from elsewhere, its loop is cut."""
    main = s.program[anchor.main]
    assert isinstance(main, ComputeOp)
    cuts = list(main.attrs[CUTS])
    if anchor.main != anchor.output:
        s[anchor.main].compute_inline()
    if not cuts:
        schedule_elementwise(s, anchor.output, anchor.target)
        return
    *outer, last = [axis.name for axis in s.program[anchor.output].axis]
    run_in_parallel(s, anchor.output, outer, anchor.target)
    for piece in s[anchor.output].partition(last, cuts):
        s[anchor.output].vectorize(piece)


def schedule_transpose(s: Schedule, anchor: Anchor) -> None:
    """Square tiles, one row of tiles of the input after the other: they touch few pages of memory at a time."""
    main = s.program[anchor.main]
    assert isinstance(main, ComputeOp)
    near = main.attrs[FROM]
    if anchor.main != anchor.output:
        s[anchor.main].compute_inline()
    op = s.program[anchor.output]
    names = [axis.name for axis in op.axis]
    if not names or near == len(names) - 1:
        schedule_elementwise(s, anchor.output, anchor.target)
        return
    turn_around(s, anchor.output, names[near], dtypes.info(op.dtype).bits, anchor.target)


def turn_around(s: Schedule, stage: str, near: str, bits: int, target: Target) -> None:
    """Make tiles of a stage that reads along its axis `near`, which are turned around in registers."""
    out, lanes = s[stage], target.lanes(bits)
    names = [axis.name for axis in out.op.axis]
    across, j = out.split(names[-1], factor=_TILE * lanes, tail="peel")
    down, i = out.split(near, factor=_TILE * lanes, tail="peel")
    row, vector = out.split(j, factor=lanes, tail="peel")
    outer = [name for name in names[:-1] if name != near]
    out.reorder(*outer, across, down, row, i, vector)
    out.vectorize(vector)
    run_in_parallel(s, stage, [*outer, across.name], target)
