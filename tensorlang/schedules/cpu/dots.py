"""Sums along memory that use what they read a few times: tiles of dot products, each summed in a vector of its own.

Products with few rows, of matrices whose terms lie side by side, are the typical case: an operand that is used by four
rows is not worth packing, and several rows that are read at once share the loads of the other operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from math import prod

import numpy as np

from tensorlang.dataclass import dataclass
from tensorlang.schedule.stage import Stage as Scheduled
from tensorlang.schedules.candidates import up_to
from tensorlang.schedules.cpu.points import run_in_parallel
from tensorlang.schedules.cpu.producers import place_producers
from tensorlang.schedules.cpu.rows import fused, partial_results
from tensorlang.schedules.recognise import Group, Stage
from tensorlang.schedules.roles import terms_of
from tensorlang.schedules.room import MOST_UNROLLED, Columns, Form, Mask, Room
from tensorlang.target.spec import Target

MOST_USES = 16  # of an operand that is read as it lies; what is used more often is packed
_FEW = 4
_SIDES = (1, 2, 3, 4, 6, 8)
_CHAINS = 8  # independent sums that keep the multiply-add units busy
STREAMS = 4
"""Vectors of rows whose dot products are summed side by side."""
_TURNS = 4
"""Tiles of those for each core, at least."""
_LONG_ROW, _CONVERTED = 32, 3
"""Vectors of a row from which on what rows share is better loaded once for several; the part of the last cache up to
which the conversions of narrow floats count, and not the memory.
"""


@dataclass(frozen=True, slots=True)
class Dots:
    """`terms`: the axes of the reduction that lie side by side along memory; `sides`: the last spatial axes, a tile."""

    terms: tuple[str, ...]
    sides: tuple[str, ...]


def dots_of(stage: Stage, lanes: int) -> Dots | None:
    """How a reduction is made of dot products; None when it does not run along memory, or uses what it reads often."""
    terms = terms_of(stage)
    sides = tuple(axis for axis in stage.spatial if stage.extents[axis] > 1)[-2:]
    if not sides or len(stage.op.body) > 1 or prod(stage.extents[axis] for axis in terms) < 2 * lanes:
        return None
    return Dots(terms, sides) if _uses(stage) <= MOST_USES else None


def uses_few(stage: Stage) -> bool:
    """Whether some of what a stage reads is used so rarely that it is best read as it lies."""
    return _uses(stage) <= _FEW


def _uses(stage: Stage) -> float:
    """How often the elements are used that are used least."""
    return min(
        stage.points / max(prod(stage.extents[axis] for axis in read.axes), 1) for read in stage.reads if read.axes
    )


def sums_lie_apart(stage: Stage) -> bool:
    """Whether only some axes of a reduction lie side by side along memory."""
    return 0 < len(terms_of(stage)) < len(stage.reduce)


def dot_forms(target: Target, group: Group) -> list[Form]:
    """A form for reductions along memory; none for other stages."""
    if group.parts:
        return []
    dots = dots_of(group.main, target.lanes(group.main.bits))
    why = "what it reads lies side by side along its terms, and is used a few times: a tile of dot products"
    return [] if dots is None else [Form("dots", partial(schedule_dots, group=group, dots=dots), why=why)]


def in_order(rows: int, terms: int, stored: int, bits: int, target: Target) -> bool:
    """Whether rows of terms that are used once, each of `stored` bits, are best read one after the other.

    Rows side by side are as many streams, which lie pages apart where rows are long. What comes from near is read fast
    in any order: there a tile of rows saves loads of what they share, and conversions where sums have other `bits`.
    """
    near = target.second_cache if stored == bits else target.caches[-1] // _CONVERTED
    return rows * terms * stored // 8 > near or terms < _LONG_ROW * target.lanes(bits)


def _usual(stage: Stage, dots: Dots, target: Target) -> tuple[int, ...]:
    """The tile of dot products that loads least for what it computes, of those that fit the registers.

    One at a time where most of what is read is used once, and comes in order.
    """
    sides, registers = dots.sides, target.vector_registers
    largest = max(stage.reads, key=lambda read: prod(stage.extents[axis] for axis in read.axes))
    terms = prod(stage.extents[axis] for axis in dots.terms)
    elements = prod(stage.extents[axis] for axis in largest.axes)
    if elements == stage.points and in_order(elements // terms, terms, 8 * largest.itemsize, stage.bits, target):
        return tuple(1 for _ in sides)

    def loads(tile: Sequence[int]) -> int:
        return sum(prod(n for axis, n in zip(sides, tile, strict=True) if axis in read.axes) for read in stage.reads)

    tiles = [*product(*(up_to(_SIDES, stage.extents[axis]) for axis in sides))]
    fitting = [t for t in tiles if prod(t) + sum(t) <= registers and prod(t) <= _CHAINS * len(t)]
    return max(fitting, key=lambda t: (prod(t) / loads(t), prod(t), -max(t)))


def schedule_dots(room: Room, group: Group, dots: Dots) -> None:
    """Sum a tile of dot products, `side_0` times `side_1`, in vectors of `lanes`; a large one is a loop."""
    s, main = room.s, group.main
    place_producers(room, group, inline=True)
    for stage in group.between:
        s[stage.name].compute_inline()
    registers = room.target.vector_registers
    usual = _usual(main, dots, room.target)
    sides = {
        axis: room.choose(f"side_{n}", up_to(_SIDES, main.extents[axis]), usual[n]) for n, axis in enumerate(dots.sides)
    }

    def fits(values: Columns) -> Mask:
        tile = [values[f"side_{n}"] for n in range(len(sides))]
        return np.asarray(prod(tile) + sum(tile) <= registers)

    room.limit(f"the register tile fits {registers} vector registers", fits)
    total = s[main.name] if group.main is not group.output else s[s.cache_write(main.name, "local")]
    total.reorder(*(axis for axis in main.reduce if axis not in dots.terms), *dots.terms)
    if prod(sides.values()) == 1:
        _sum_in_order(room, group, total, dots)
        return
    _, lane = total.split(fused(total, [*dots.terms]), factor=room.given.get("lanes", room.target.lanes(main.bits)))
    part = s[partial_results(s, total.name, str(lane), len(main.spatial))]
    out = s[group.output.name]
    names = dict(zip(main.spatial, (str(a) for a in out.op.axis), strict=True))
    outer = {axis: names[axis] for axis in main.spatial}
    inner: list[str] = []
    for axis, size in sides.items():
        around, inside = out.split(names[axis], size, tail="peel")
        outer[axis] = str(around)
        inner.append(str(inside))
    out.reorder(*outer.values(), *inner)
    loop = run_in_parallel(s, out.name, [*outer.values()], room.target, int(main.points))
    for stage_of_tile in (total, part):
        stage_of_tile.compute_at(out, loop)
        stage_of_tile.set_scope("local")
    is_short = prod(sides.values()) <= MOST_UNROLLED
    for tile, axes in ((out, inner), (total, [*sides])):
        for axis in axes[:-1] if is_short else ():
            tile.unroll(axis)
        tile.vectorize(axes[-1])
    steps = [str(axis) for axis in part.op.reduce_axis]
    lanes = str(part.op.axis[-1])
    around_tile = [axis for axis in main.spatial if axis not in sides]
    part.reorder(*around_tile, *steps, *sides, lanes)
    for axis in sides if is_short else ():
        part.unroll(axis)
    part.vectorize(lanes)


def _sum_in_order(room: Room, group: Group, total: Scheduled, dots: Dots) -> None:
    """Sum one dot product after the other, several vectors of its terms at a time.

    Where a row and what it is multiplied with fill the first cache, some rows share the latter. They lie a vector of
    rows apart, so that each goes on where it ended. What follows the sums is made for a vector of them.
    """
    s, main, lanes = room.s, group.main, room.target.lanes(group.main.bits)
    out, row = s[group.output.name], dots.sides[-1]
    names = dict(zip(main.spatial, (str(a) for a in out.op.axis), strict=True))
    around = in_vectors(out, [*names.values()], names[row], lanes)
    side_by_side = _fill_the_first_cache(main, dots, room.target)
    if side_by_side:
        place = main.spatial.index(row)
        around[place], vector = map(str, out.split(around[place], factor=STREAMS, tail="peel"))
        out.reorder(*around, vector)
        out.unroll(vector)
    loop = run_in_parallel(s, out.name, around, room.target, int(main.points))
    total.compute_at(out, loop)
    total.set_scope("local")
    term = fused(total, [*dots.terms])
    if side_by_side:
        stream, inside = map(str, total.split(row, factor=lanes))
        total.reorder(inside, term, stream)
        total.unroll(stream)
    total.pragma(term, "reduce_tree")


def _fill_the_first_cache(stage: Stage, dots: Dots, target: Target) -> bool:
    """Whether a row and what all rows are multiplied with leave no room for each other in the first cache."""
    row, terms = dots.sides[-1], prod(stage.extents[axis] for axis in dots.terms)
    along = [read for read in stage.reads if read.axes & {*dots.terms}]
    moved = [read for read in along if row in read.axes]
    size = terms * sum(read.itemsize for read in along)
    is_shared = len(moved) == 1 < len(along) and {*stage.reduce} == {*dots.terms}
    return is_shared and rows_share(stage.extents[row], size, stage.bits, target)


def rows_share(rows: int, size: int, bits: int, target: Target) -> bool:
    """Whether rows of dot products are best summed side by side: a row and what it is multiplied with fill the cache.

    `size`: the bytes of both. And whether there are tiles of such rows enough for all cores.
    """
    return rows // (STREAMS * target.lanes(bits)) >= _TURNS * target.cores and size >= target.caches[0]


def in_vectors(out: Scheduled, loops: Sequence[str], axis: str, lanes: int) -> list[str]:
    """Make vectors of one of the loops of a stage, inside of all of them; returns them, over vectors where it was."""
    around, inside = map(str, out.split(axis, lanes, tail="peel"))
    outer = [around if loop == axis else loop for loop in loops]
    out.reorder(*outer, inside)
    out.vectorize(inside)
    return outer
