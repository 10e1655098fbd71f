"""Stages that read neighbours of what others compute, as filters of images do: rows kept while they are read.

Computed where it is read, an element is made again for each of its readers; in an array of its own, it goes to memory
and comes back. So the rows that the next row reads, too, are made once and kept in a ring of as many rows as are read
at once (the sliding window of Halide: Ragan-Kelley et al., PLDI 2013). Where the rows that are read do not move evenly,
as at borders that repeat, tiles of rows have theirs made.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import ceil, prod

from tensorlang import dtypes
from tensorlang.errors import BadArgument
from tensorlang.schedule.stage import Stage as Loops
from tensorlang.schedules.accesses import LINE
from tensorlang.schedules.anchor import axes_of, compute_op
from tensorlang.schedules.candidates import around, up_to
from tensorlang.schedules.cpu.moves import schedule_alone
from tensorlang.schedules.cpu.pixels import CHANNELS
from tensorlang.schedules.cpu.points import contiguous_axes, run_in_parallel, work_of
from tensorlang.schedules.cpu.producers import place_producers
from tensorlang.schedules.moves import cuts_of
from tensorlang.schedules.recognise import Group
from tensorlang.schedules.room import Form, Room
from tensorlang.schedules.stencils import Stencil, stencil_of
from tensorlang.target.spec import Target
from tensorlang.te.axis import extent_of

_TOGETHER = (1, 2, 4, 8)
_MANY = 5
"""Places that are read from which on four rows are made at once, which share vectors of them; of fewer, two."""
_SHARES = 2
"""Bands of rows for each thread: each begins with rows that the one before has made, too."""
_UNKNOWN = 256
"""Stands for a number of rows that is not known."""
_HELD = 4
"""Pieces of rows that share the first cache: what is read, what is made, and room."""
_TILE = 32
"""Rows of a tile that has its own made."""


def ring_forms(target: Target, group: Group) -> list[Form]:
    """Forms for an elementwise group that would compute elements of its producers again and again; none for others."""
    stencil = stencil_of(group)
    if stencil is None:
        return []
    body, names = partial(_schedule, group=group, stencil=stencil), ", ".join(stencil.kept)
    if len(group.main.spatial) == 1:
        why = f"pieces of a row have theirs of {names}"
        return [Form("tiles", partial(_schedule_row, group=group, stencil=stencil), why)]
    found = [Form("tiles", partial(body, rolling=False), f"tiles of rows have theirs of {names}")]
    if stencil.even:
        why = f"rows of {names} are made once, and kept while they are read"
        found.insert(0, Form("rings", partial(body, rolling=True), why))
    return found


def _schedule(room: Room, group: Group, stencil: Stencil, rolling: bool) -> None:
    """Bands or tiles of rows, shared out to threads; in each step some rows of all stages, the last one outermost."""
    others = tuple(stage for stage in group.producers if stage.name not in stencil.kept)
    place_producers(room, replace(group, producers=others), inline=True)
    s, target, name = room.s, room.target, group.main.name
    ringed = _ringed(room, group, stencil)
    work = sum(work_of(compute_op(s, stage)) for stage in (name, *ringed))
    main, axes = s[name], axes_of(s, name)
    outer, row = axes[: stencil.row], axes[stencil.row]
    rows, usual = group.main.extents[row], 2 if stencil.reads < _MANY else 4
    is_known = extent_of(group.main.op.axes[stencil.row].extent) is not None
    band = _band(target, prod(group.main.extents[axis] for axis in outer), rows if is_known else _UNKNOWN, rolling)
    if band < rows:
        chosen = room.choose("band", around(band, rows), band)
        first, row = (axis.name for axis in main.split(row, factor=chosen))
        outer = [*outer, first]
    together = room.choose("rows", up_to(_TOGETHER, band), min(usual, band))
    step, inner = (axis.name for axis in main.split(row, factor=together))
    _along(room, main, inner, axes[stencil.row + 1 :])
    for ring in ringed:
        loops = s[ring]
        _spread(room, ring, stencil.kept[ring])
        loops.compute_at(main, step if rolling or not outer else outer[-1])
        if rolling:
            loops.rolling_buffer()
        own, place = axes_of(s, ring), stencil.kept[ring]
        few = own[place] if rolling else loops.split(own[place], factor=together, tail="peel")[1].name
        _along(room, loops, few, own[place + 1 :])
    if outer:
        run_in_parallel(s, name, outer, target, work)


def _schedule_row(room: Room, group: Group, stencil: Stencil) -> None:
    """Pieces of the only row, for which all stages are made one after the other, in the first cache."""
    others = tuple(stage for stage in group.producers if stage.name not in stencil.kept)
    place_producers(room, replace(group, producers=others), inline=True)
    s, target, name = room.s, room.target, group.main.name
    ringed = _ringed(room, group, stencil)
    work = sum(work_of(compute_op(s, stage)) for stage in (name, *ringed))
    (axis,), lanes = axes_of(s, name), target.lanes(group.main.bits)
    usual = max(1, target.caches[0] // (_HELD * group.main.bits // 8) // lanes) * lanes
    piece, inner = s[name].split(axis, factor=room.choose("piece", around(usual, group.main.extents[axis]), usual))
    s[name].vectorize(inner)
    for ring in ringed:
        s[ring].compute_at(s[name], piece)
        s[ring].vectorize(axes_of(s, ring)[0])
    run_in_parallel(s, name, [piece.name], target, work)


def _spread(room: Room, ring: str, row: int) -> None:
    """Lay the rows of a ring an odd number of lines apart: those read at once are in different sets of a cache."""
    op = compute_op(room.s, ring)
    line = LINE // dtypes.info(op.dtype).bytes
    with suppress(BadArgument):  # where a row has a size that is not known
        room.s[ring].storage_align(op.axes[row].name, 2 * line, line)


def _ringed(room: Room, group: Group, stencil: Stencil) -> list[str]:
    """What rows are kept of, last ones first. All else is made in arrays of its own.

    That is what comes in pieces, which are for loops of their own, and what such stages read.
    """
    found = list[str]()
    for stage in reversed(group.producers):
        if stage.name in stencil.kept:
            inside = {*room.s.program.consumers[stage.name]} <= {group.main.name, *found}
            if inside and not cuts_of(compute_op(room.s, stage.name)):
                found.append(stage.name)
            else:
                schedule_alone(room, stage)
    return found


def _band(target: Target, images: int, rows: int, rolling: bool) -> int:
    """Rows that one thread makes one after the other; of a tile, where there are no rings."""
    if not rolling:
        return min(rows, _TILE)
    shares = target.cores * _SHARES if target.cores > 1 else 1
    return ceil(rows / max(1, ceil(shares / images)))


def _along(room: Room, loops: Loops, row: str, inner: Sequence[str]) -> None:
    """Run along memory in vectors, piece by piece where a row comes from several places.

    Else the rows of a step are made side by side, so that a vector that several of them read is loaded once; of pixels
    whose channels differ, all of each.
    """
    op = compute_op(room.s, loops.name)
    if cuts := cuts_of(op):
        for piece in loops.partition(inner[-1], cuts):
            loops.vectorize(piece)
        return
    count = min(contiguous_axes(op), len(inner))
    channels = inner[-1:] if count == 1 < len(inner) and 1 < (extent_of(op.axes[-1].extent) or 0) <= CHANNELS else ()
    if channels:
        *rest, along = inner[:-1]
    else:
        *rest, along = [*inner[:-count], loops.fuse(*inner[-count:]).name if count > 1 else inner[-1]]
    vectors, lane = loops.split(along, factor=room.target.lanes(dtypes.info(op.dtype).bits), tail="peel")
    loops.reorder(*rest, vectors, row, lane, *channels)
    for written_out in (row, *channels):
        loops.unroll(written_out)
    loops.vectorize(lane)
