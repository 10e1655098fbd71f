"""Stages that move data: pieces side by side, and matrices turned around."""

from __future__ import annotations

from math import prod

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Binary, Const, Expr, Var, walk
from tensorlang.schedule.stage import Stage as Loops
from tensorlang.schedules.anchor import axes_of, compute_op
from tensorlang.schedules.candidates import vector_widths
from tensorlang.schedules.cpu.panels import schedule_panels
from tensorlang.schedules.cpu.points import is_one_row, run_in_parallel, schedule_elementwise, work_of
from tensorlang.schedules.moves import chooses, cuts_of, near_axis
from tensorlang.schedules.recognise import Stage, stage_of
from tensorlang.schedules.room import Room
from tensorlang.schedules.words import WORD, is_word_layout
from tensorlang.te.axis import Axis, extent_of
from tensorlang.te.operation import ComputeOp, loads

_TILE = 4
"""Vectors along the side of a tile that is turned around."""


def schedule_alone(room: Room, stage: Stage) -> None:
    """Run an elementwise stage on its own, by what it moves, where that is legal."""
    op = room.s.program[stage.name]
    if is_word_layout(stage.op):
        room.s.attempt(lambda: schedule_panels(room.s, stage.name, room.target))
        return
    body = schedule_pieces if isinstance(op, ComputeOp) and (chooses(op) or comes_in_pieces(op)) else schedule_turned
    if not room.s.attempt(lambda: body(room, stage.name)):
        room.s.attempt(lambda: schedule_elementwise(room, stage.name))


@dataclass(frozen=True, slots=True)
class Pixels:
    """A row of several pixels: so many channels of each side by side; `apart`: not so in what is read."""

    channels: int
    apart: bool


def comes_in_pieces(op: ComputeOp) -> bool:
    """Whether a row of a stage comes from several places, or pixel by pixel."""
    return bool(cuts_of(op)) or pixels_of(op) is not None


def pixels_of(op: ComputeOp) -> Pixels | None:
    """The pixels of a row that is not read as it lies; None where it has none."""
    for load in loads(op) if op.axes and not op.reduce_axes else ():
        for place, index in enumerate(load.index):
            for node in walk(index):
                match node:
                    case Binary(op="floormod", a=Var(name=name), b=Const(value=size)) if name == op.axes[-1].name:
                        return None if is_one_row(load, op, 1) else Pixels(int(size), place < len(load.index) - 1)
    return None


def schedule_pieces(room: Room, name: str) -> None:
    """Run along memory piece by piece: where a row comes from elsewhere, its loop is cut."""
    op, stage = compute_op(room.s, name), room.s[name]
    cuts, pixels = cuts_of(op), pixels_of(op)
    if pixels is not None:
        _schedule_pixels(room, op, pixels)
        return
    if not cuts:
        schedule_elementwise(room, name)
        return
    *outer, last = axes_of(room.s, name)
    run_in_parallel(room.s, name, outer, room.target)
    for piece in stage.partition(last, cuts):
        stage.vectorize(piece)


def _schedule_pixels(room: Room, op: ComputeOp, pixels: Pixels) -> None:
    """Run along the channels of each pixel, or turn channels that lie apart around in registers.

    What is padding has loops of its own, so that those over the image have no conditions.
    """
    stage, (*outer, last) = room.s[op.name], op.axes
    along, padding = _cut(stage, last, cuts_of(op))
    for part in padding:
        stage.vectorize(part)
    pixel, channel = stage.split(along, factor=pixels.channels)
    block, lane = stage.split(channel, factor=2 * room.target.lanes(WORD), tail="peel")
    stage.reorder(*([block, lane, pixel] if pixels.apart else [pixel, block, lane]))
    stage.vectorize(lane)
    if outer:
        row, _ = _cut(stage, outer[-1], cuts_of(op, -2))
        around, cores = [axis.name for axis in outer[:-1]], room.target.cores
        many = prod(extent_of(axis.extent) or cores for axis in outer[:-1]) >= cores > 1
        run_in_parallel(room.s, op.name, around if many else [row], room.target, work_of(op))


def _cut(stage: Loops, axis: Axis, cuts: list[Expr]) -> tuple[str, list[str]]:
    """Cut a loop; returns the longest part, and the others."""
    parts = [part.name for part in stage.partition(axis.name, cuts)] if cuts else [axis.name]
    state = stage.schedule.state
    longest = max(parts, key=lambda part: extent_of(state.axis(stage.name, part).extent) or 0)
    return longest, [part for part in parts if part != longest]


def schedule_turned(room: Room, name: str) -> None:
    """Turn a stage around in tiles where it reads across its vectors."""
    near = near_axis(stage_of(compute_op(room.s, name)))
    if near is None:
        schedule_elementwise(room, name)
    else:
        turn_around(room, name, near)


def turn_around(room: Room, name: str, near: str, bits: int | None = None) -> None:
    """Make tiles of a stage that reads along its axis `near`, which are turned around in registers.

    Square tiles, one row of tiles of the input after the other, touch few pages of memory at a time. The loop along
    what is read is inside of the vectors: there code generation reads rows as they lie.
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
    out.reorder(*outer, across, down, row, vector, i)
    out.vectorize(vector)
    run_in_parallel(room.s, name, [*outer, across.name], room.target)
