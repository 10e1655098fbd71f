"""Reductions that use what they read several times: tiles of blocks, of threads, and of registers.

A block computes a tile of the output; its threads fetch what a step of the reduction reads into shared memory together,
some elements at a time, and perhaps some steps ahead; each thread sums a tile of its own in registers. Virtual threads
spread a thread's tile over the block, so that neighbouring threads read neighbouring elements. What follows the sum is
computed where the tile is written. The structure is that of Ansor's multi-level tiling (Zheng et al., OSDI 2020).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod

import numpy as np

from tensorlang.dataclass import dataclass
from tensorlang.ir.thread_tags import VIRTUAL
from tensorlang.schedule import Decision
from tensorlang.schedule.stage import Stage
from tensorlang.schedules.accesses import Access, Array
from tensorlang.schedules.candidates import up_to
from tensorlang.schedules.gpu.block import (
    Side,
    choose_sides,
    footprint_bytes,
    limit_grid,
    limit_registers,
    limit_shared,
    limit_threads,
    limit_waste,
    math_product,
    words,
)
from tensorlang.schedules.gpu.elements import schedule_elements
from tensorlang.schedules.recognise import Group, is_read_often
from tensorlang.schedules.recognise import Stage as Described
from tensorlang.schedules.roles import SMALL_WINDOW
from tensorlang.schedules.room import Columns, Form, Mask, Room
from tensorlang.target.spec import Target
from tensorlang.te.axis import Axis

STEPS = (1, 2, 4, 8, 16, 32, 64)
UNROLLS = (1, 2, 4, 8, 16)
FETCHES = (1, 2, 4, 8)
WIDE = 16
"""Bytes that a thread fetches at once at most."""
PIPELINES = (1, 2, 3, 4)
MOST_UNROLLED = 1024
MOST_SIDES = 3
FEWEST_USES = 2


@dataclass(frozen=True, slots=True)
class Shape:
    """One shape of schedule. `shared`: operands are staged in shared memory; `registers`: and then in registers."""

    shared: bool
    registers: bool

    @property
    def name(self) -> str:
        """The name of its sketch."""
        return ".".join(("tiles", "shared" if self.shared else "direct", *(["registers"] if self.registers else [])))


@dataclass(frozen=True, slots=True)
class Roles:
    """The `sides` of a tile, those along memory first; all other axes number blocks; `steps` of the reduction."""

    stage: Described
    sides: tuple[str, ...]
    others: tuple[str, ...]
    steps: tuple[str, ...]

    @property
    def staged(self) -> tuple[str, ...]:
        """The arrays that the elements of a tile share."""
        reads = [r for r in self.stage.reads if r.axes and any(side not in r.axes for side in self.sides)]
        reads += [r for r in self.stage.reads if r not in reads and any(len(terms) > 1 for terms in r.dims)]
        return tuple(dict.fromkeys(r.buffer for r in self.stage.reads if r in reads))


def tile_forms(target: Target, group: Group) -> list[Form]:
    """Forms for a reduction with reuse; none for other stages."""
    roles = roles_of(group.main)
    if roles is None or group.parts:
        return []
    shapes = [Shape(True, False), Shape(True, True), Shape(False, False)] if roles.staged else [Shape(False, False)]
    return [Form(shape.name, partial(_schedule, group=group, roles=roles, shape=shape)) for shape in shapes]


def roles_of(stage: Described) -> Roles | None:
    """How the axes of a reduction are tiled; None when it is none, or reads nothing twice."""
    spatial = [axis for axis in stage.spatial if stage.extents[axis] > 1]
    if not stage.reduce or not spatial or len(stage.op.body) > 1:
        return None
    total = prod(stage.extents[axis] for axis in spatial)
    if all(_uses(stage, read) < FEWEST_USES for read in stage.reads) and total < _ENOUGH:
        return None
    *others, last = spatial
    shared = [axis for axis in others if _is_shared(stage, axis)]
    sides = (last, *reversed(shared[-(MOST_SIDES - 1) :]))
    steps = tuple(sorted(stage.reduce, key=lambda axis: stage.extents[axis]))
    return Roles(stage, sides, tuple(axis for axis in stage.spatial if axis not in sides), steps)


_ENOUGH = 1 << 12
"""Results that keep a GPU busy, one a thread."""


def _uses(stage: Described, read: Access) -> float:
    return stage.points / prod(stage.extents[axis] for axis in read.axes)


def _is_shared(stage: Described, axis: str) -> bool:
    """Whether neighbours along an axis read the same elements."""
    return any(axis not in read.axes or _slides(read, axis) for read in stage.reads if read.axes)


def _slides(read: Access, axis: str) -> bool:
    return any(len(terms) > 1 and any(name == axis for name, _ in terms) for terms in read.dims)


@dataclass(frozen=True, slots=True)
class _Tile:
    """The open numbers: how sides are cut, how much of each axis of the reduction is a step, what is written out."""

    sides: tuple[Side, ...]
    steps: Mapping[str, Decision]
    unroll: Decision
    fetch: Mapping[str, Decision]
    pipeline: Decision | None


def _schedule(room: Room, group: Group, roles: Roles, shape: Shape) -> None:
    """Write the schedule of a shape, decisions open."""
    s, main = room.s, group.main
    made = _place_producers(room, group, shape)
    for stage in group.between:
        s[stage.name].compute_inline()
    if group.main is group.output:
        total = s[s.cache_write(main.name, "local")]
    else:
        total = s[main.name]
        total.set_scope("local")
    out = s[group.output.name]
    tile = _decide(room, roles, shape, made)
    names = dict(zip(main.spatial, (str(a) for a in out.op.axis), strict=True))
    total.compute_at(out, bind_tile(out, tile.sides, names, roles.others))
    outer, inner = _schedule_sum(total, roles, tile)
    if not shape.shared:
        return
    for buffer in roles.staged:
        producer = s.program.producer.get(buffer, "")
        copy = s[producer] if producer in made else s[s.cache_read(buffer, "shared", [total.name])]
        copy.compute_at(total, outer)
        fetch_together(copy, tile.sides, tile.fetch[buffer])
        if producer not in made and tile.pipeline is not None:
            copy.pipeline(tile.pipeline)
        if shape.registers:
            own = s[s.cache_read(copy.name, "local", [total.name])]
            own.compute_at(total, inner)
            for axis in own.op.axis:
                own.unroll(axis)


def _place_producers(room: Room, group: Group, shape: Shape) -> set[str]:
    """Stages in front: those that are read often in shared memory, where the tiles are; the others where they are read.

    Returns the names of the first.
    """
    s, staged = room.s, set[str]()
    for stage in group.producers:
        if shape.shared and is_read_often(group, stage) and group.main.reads_of(stage.name):
            s[stage.name].set_scope("shared")
            staged.add(stage.name)
        elif not room.s.attempt(s[stage.name].compute_inline):
            schedule_elements(room, stage.name)
    return staged


def _decide(room: Room, roles: Roles, shape: Shape, made: set[str]) -> _Tile:
    stage = roles.stage
    sides = choose_sides(room, [(axis, stage.extents[axis]) for axis in roles.sides])
    steps = {axis: room.leave_open(f"step_{n}", _steps(stage.extents[axis])) for n, axis in enumerate(roles.steps[-3:])}
    unroll = room.leave_open("unroll", up_to(UNROLLS, stage.extents[roles.steps[-1]]))
    reads = {b: [r for r in stage.reads if r.buffer == b] for b in roles.staged if shape.shared}
    fetch = {b: room.leave_open(f"fetch_{n}", _fetches(own[0])) for n, (b, own) in enumerate(reads.items())}
    copies = [b for b in reads if b not in made]
    pipeline = room.leave_open("pipeline", _pipelines(room)) if copies else None
    tile = _Tile(sides, steps, unroll, fetch, pipeline)
    _limit(room, roles, shape, tile, reads)
    return tile


def _steps(extent: int) -> tuple[int, ...]:
    return tuple(sorted({1, extent})) if extent <= SMALL_WINDOW else up_to(STEPS, extent)


def _fetches(read: Access) -> tuple[int, ...]:
    """How many elements a thread may fetch at once: several where the last dimension is one axis, read as it lies."""
    terms = read.dims[-1]
    along = len(terms) == 1 and isinstance(terms[0][1], int) and terms[0][1] == 1
    return tuple(f for f in FETCHES if f == 1 or (along and f * read.itemsize <= WIDE and read.shape[-1] % f == 0))


def _pipelines(room: Room) -> tuple[int, ...]:
    """How many tiles are kept at once: asynchronous copies pay for more than two."""
    return PIPELINES if room.target.can.async_copies else PIPELINES[:2]


def _limit(room: Room, roles: Roles, shape: Shape, tile: _Tile, reads: Mapping[str, Sequence[Access]]) -> None:
    stage, sides = roles.stage, tile.sides
    steps = {axis: d.name.removeprefix(room.prefix) for axis, d in tile.steps.items()}

    def extents(values: Columns) -> dict[str, Array]:
        """What a block reads at a time."""
        count = max(column.size for column in values.values())
        found = dict.fromkeys(stage.extents, np.ones(count))
        found |= {side.axis: np.minimum(side.tile(values, room), side.extent) for side in sides}
        return found | {axis: np.minimum(values[name], stage.extents[axis]) for axis, name in steps.items()}

    def own(values: Columns) -> Array:
        return math_product(values[name] for side in sides for name in (side.names(room)[0], side.names(room)[2]))

    def registers(values: Columns) -> Array:
        held = words(own(values), stage.bits)
        inner = [values[side.names(room)[2]] for side in sides]
        return held + (words(math_product(inner) ** 0.5 * 2, stage.bits) if shape.registers else 0)

    def shared(values: Columns) -> Array:
        tiles = values.get("pipeline", np.ones(1))
        found = extents(values)
        return np.asarray(tiles * sum(footprint_bytes(r, found) for several in reads.values() for r in several))

    def short(values: Columns) -> Mask:
        return np.asarray(own(values) * values["unroll"] <= MOST_UNROLLED)

    def whole(values: Columns) -> Mask:
        """Whether fetched vectors lie within rows of the tile, and as many terms are written out as there are."""
        found, good = extents(values), values["unroll"] <= values[steps[roles.steps[-1]]]
        for n, several in enumerate(reads.values()):
            good = good & _fills(several[0], found, values[f"fetch_{n}"])
        return np.asarray(good)

    def even(values: Columns) -> Mask:
        """Whether tiles ahead are all of one size: windows that are cut at an edge take long to prove."""
        waste = math_product(np.ceil(s.extent / s.tile(values, room)) * s.tile(values, room) / s.extent for s in sides)
        return np.asarray((values["pipeline"] == 1) | (waste == 1))

    threads = [side.names(room)[1] for side in sides]
    limit_threads(room, threads, prod(side.extent for side in sides))
    limit_waste(room, sides, {name: stage.extents[axis] for axis, name in steps.items()})
    limit_grid(room, sides, prod(stage.extents[axis] for axis in roles.others))
    limit_registers(room, registers)
    if reads:
        limit_shared(room, shared)
    room.limit(f"an unrolled body has at most {MOST_UNROLLED} operations", short)
    if tile.pipeline is not None and any(len(terms) > 1 for r in stage.reads for terms in r.dims):
        room.limit("windows that are fetched ahead are whole", even)
    room.limit("vectors that are fetched fill the rows of a tile", whole)


def _fills(read: Access, tile: Mapping[str, Array], vector: Array) -> Mask:
    """Whether the rows of a read in a tile are so many vectors."""
    return np.asarray((vector == 1) | (tile[read.dims[-1][0][0]] % vector == 0) if read.dims[-1] else vector == 1)


def bind_tile(out: Stage, sides: Sequence[Side], names: Mapping[str, str], others: Sequence[str]) -> Axis:
    """Cut the sides of an output, and run the parts on blocks and threads; returns the innermost loop over threads."""
    blocks: list[Axis] = []
    virtual: list[Axis] = []
    threads: list[Axis] = []
    inner: list[Axis] = []
    for side in reversed(sides):
        rest, own = out.split(names[side.axis], side.inner)
        rest, thread = out.split(rest, side.threads)
        block, strand = out.split(rest, side.virtual)
        for found, axis in ((blocks, block), (virtual, strand), (threads, thread), (inner, own)):
            found.append(axis)
    batch = [names[axis] for axis in others]
    out.reorder(*batch, *blocks, *virtual, *threads, *inner)
    if batch or len(sides) > 2:
        last: list[Axis | str] = [*batch, *blocks[: max(0, len(sides) - 2)]]
        out.bind(out.fuse(*last) if len(last) > 1 else last[0], "blockIdx.z")
    for side, block in zip(sides[:2], reversed(blocks), strict=False):
        out.bind(block, f"blockIdx.{side.tag}")
    for strand in virtual:
        out.bind(strand, VIRTUAL)
    for side, thread in zip(sides, reversed(threads), strict=True):
        out.bind(thread, f"threadIdx.{side.tag}")
    for axis in inner[:-1]:
        out.unroll(axis)
    out.vectorize(inner[-1])
    return threads[-1]


def _schedule_sum(total: Stage, roles: Roles, tile: _Tile) -> tuple[Axis | str, Axis]:
    """Sum the tile of a thread; returns the loop around a step of the reduction, and the one around a term."""
    outer: list[Axis | str] = []
    inner: list[Axis] = []
    for axis in roles.steps:
        if axis not in tile.steps:
            outer.append(axis)
            continue
        around, inside = total.split(axis, tile.steps[axis])
        outer.append(around)
        inner.append(inside)
    rest, term = total.split(inner.pop(), tile.unroll)
    spatial = [*roles.others, *reversed(roles.sides)]
    total.reorder(*outer, *inner, rest, term, *spatial)
    total.unroll(term)
    for axis in roles.sides:
        total.unroll(axis)
    return outer[-1], term


def fetch_together(copy: Stage, sides: Sequence[Side], vector: Decision) -> None:
    """Let all threads of a block compute a stage together, each so many neighbouring elements at a time."""
    axes = list(copy.op.axis)
    rest, lanes = copy.split(copy.fuse(*axes) if len(axes) > 1 else axes[0], vector)
    copy.vectorize(lanes)
    for side in sides:
        rest, thread = copy.split(rest, side.threads)
        copy.bind(thread, f"threadIdx.{side.tag}")
