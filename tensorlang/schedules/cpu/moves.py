"""Stages that move data: pieces side by side, and matrices turned around."""

from __future__ import annotations

from tensorlang import dtypes
from tensorlang.schedules.anchor import axes_of, compute_op
from tensorlang.schedules.candidates import vector_widths
from tensorlang.schedules.cpu.panels import schedule_panels
from tensorlang.schedules.cpu.points import run_in_parallel, schedule_elementwise
from tensorlang.schedules.moves import chooses, cuts_of, near_axis
from tensorlang.schedules.recognise import Stage, stage_of
from tensorlang.schedules.room import Room
from tensorlang.schedules.words import is_word_layout
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import ComputeOp

_TILE = 4
"""Vectors along the side of a tile that is turned around."""


def schedule_alone(room: Room, stage: Stage) -> None:
    """Run an elementwise stage on its own, by what it moves, where that is legal."""
    op = room.s.program[stage.name]
    if is_word_layout(stage.op):
        room.s.attempt(lambda: schedule_panels(room.s, stage.name, room.target))
        return
    body = schedule_pieces if isinstance(op, ComputeOp) and chooses(op) else schedule_turned
    room.s.attempt(lambda: body(room, stage.name))


def schedule_pieces(room: Room, name: str) -> None:
    """Run along memory piece by piece: where a row comes from elsewhere, its loop is cut."""
    cuts = cuts_of(compute_op(room.s, name))
    if not cuts:
        schedule_elementwise(room, name)
        return
    *outer, last = axes_of(room.s, name)
    run_in_parallel(room.s, name, outer, room.target)
    for piece in room.s[name].partition(last, cuts):
        room.s[name].vectorize(piece)


def schedule_turned(room: Room, name: str) -> None:
    """Turn a stage around in tiles where it reads across its vectors."""
    near = near_axis(stage_of(compute_op(room.s, name)))
    if near is None:
        schedule_elementwise(room, name)
    else:
        turn_around(room, name, near)


def turn_around(room: Room, name: str, near: str, bits: int | None = None) -> None:
    """Make tiles of a stage that reads along its axis `near`, which are turned around in registers.

    Square tiles, one row of tiles of the input after the other, touch few pages of memory at a time.
    """
    out, op = room.s[name], compute_op(room.s, name)
    lanes = room.target.lanes(bits or dtypes.info(op.dtype).bits)
    names = axes_of(room.s, name)
    sides = [_TILE * lanes, _TILE * lanes]
    if name == room.stage:
        extents = {axis.name: extent_of(axis.extent) or _TILE * lanes for axis in op.axes}
        across_down = (("across", names[-1]), ("down", near))
        sides = [room.choose(side, vector_widths(extents[n], lanes), _TILE * lanes) for side, n in across_down]
    across, j = out.split(names[-1], factor=sides[0], tail="peel")
    down, i = out.split(near, factor=sides[1], tail="peel")
    row, vector = out.split(j, factor=lanes, tail="peel")
    outer = [axis for axis in names[:-1] if axis != near]
    out.reorder(*outer, across, down, row, i, vector)
    out.vectorize(vector)
    run_in_parallel(room.s, name, [*outer, across.name], room.target)
