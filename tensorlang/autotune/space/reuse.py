"""Reductions that use what they read several times: products of matrices, convolutions, and whatever is like them.

The sketches are the loops around a micro-kernel: a register tile of rows times vectors, its reduction inside, and
blocks of columns or of rows around it. The operand that runs along the vectors is packed into panels of the tile's
width where that pays. Elementwise stages behind the reduction are computed in its tile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np

from tensorlang.autotune.search.sketch import Columns, Mask
from tensorlang.autotune.space.candidates import ROWS, UNROLLS, column_blocks, row_blocks, up_to, vector_widths
from tensorlang.autotune.space.producers import place_producers
from tensorlang.autotune.space.roles import THIN, Roles, all_roles
from tensorlang.autotune.space.room import MOST_UNROLLED, Form, Room
from tensorlang.autotune.space.structure import Group
from tensorlang.autotune.task import Task
from tensorlang.ir.expr import Expr
from tensorlang.schedule import Decision
from tensorlang.schedule.stage import Stage
from tensorlang.te.axis import Axis

_SHORT = 128  # divisors of axes up to this extent are tried as rows


@dataclass(frozen=True, slots=True)
class Shape:
    """One shape of schedule.

    `order`: `rows` walks row tiles, and column tiles inside a block of columns; `columns` the other way round.
    `pack`: nothing, all of the operand at the start, or a block of columns at a time. `parallel`: the loops that
    threads share, of `block`s or of `tile`s, if any. `copies`: windows are written out. `inline`: elementwise stages
    in front are computed where they are read.
    """

    pack: str
    order: str
    parallel: str
    copies: bool
    inline: bool


def reuse_forms(task: Task, group: Group) -> list[Form]:
    """Forms for a reduction with reuse; none for other stages."""
    found: list[Form] = []
    several = all_roles(group.main, task.target.lanes(group.main.bits))
    for roles in several:
        for shape in _shapes(task, group, roles):
            words = [f"along-{roles.vector}" if len(several) > 1 else "", f"pack-{shape.pack}", shape.order]
            words += [shape.parallel, "copies" if shape.copies else "", "inline" if shape.inline else ""]
            name = ".".join(("reuse", *filter(None, words)))
            found.append(Form(name, partial(_schedule, group=group, roles=roles, shape=shape)))
    return found


def _shapes(task: Task, group: Group, roles: Roles) -> Iterator[Shape]:
    packs = ["none"] if roles.contiguous else []
    if roles.packable and roles.reuse >= THIN:
        packs = ["block", "all", *packs]
    shared = ("",) if task.threads == 1 else ("block", "tile")
    windows = (True, False) if roles.windows else (False,)
    inline = (False, True) if group.producers else (False,)
    for copies in windows:
        for inlined in inline:
            for pack in packs:
                for order in ("rows", "columns") if pack != "block" and roles.rows else ("rows",):
                    for parallel in shared:
                        yield Shape(pack, order, parallel, copies, inlined)


@dataclass(frozen=True, slots=True)
class _Tile:
    """The open numbers of a tile: `deep` rows of the next axis are taken too, where rows are short."""

    rows: Decision
    deep: Decision | None
    width: Decision
    block: Decision
    unroll: Decision


def _schedule(room: Room, group: Group, roles: Roles, shape: Shape) -> None:
    """Write the schedule of a shape, decisions open."""
    s = room.s
    place_producers(room, group, shape.inline)
    for stage in group.between:
        s[stage.name].compute_inline()
    tile = _decide(room, roles, shape)
    out = s[group.output.name]
    if group.main is group.output:
        acc = s[s.cache_write(group.main.name, "local")]
    else:
        acc = s[group.main.name]
        acc.set_scope("local")
    packed = s[s.cache_read(roles.operand.buffer, "global", [acc.name])] if shape.pack != "none" else None
    panel = None if packed is None else _pack(packed, roles, tile.width)
    names = dict(zip(group.main.spatial, (str(a) for a in out.op.axis), strict=True))
    transposed = roles.vector != group.main.spatial[-1]
    inner = _vectors_last(acc, roles, tile.width) if transposed else dict(zip(names, names, strict=True))
    block, around = _schedule_output(out, roles, shape, tile, names)
    acc.compute_at(out, around)
    _schedule_sum(acc, roles, shape, tile, inner)
    if packed is not None and panel is not None:
        if shape.pack == "block":
            packed.compute_at(out, block)
        if shape.parallel and (shape.pack, shape.parallel) != ("block", "block"):
            packed.parallel(panel)


def _decide(room: Room, roles: Roles, shape: Shape) -> _Tile:
    stage, lanes = roles.stage, room.target.lanes(roles.stage.bits)
    tall, wide = roles.extent(roles.rows), roles.extent(roles.vector)
    divisors = [n for n in range(1, 29) if tall % n == 0] if tall <= _SHORT else []
    rows = room.choose("rows", sorted({*up_to(ROWS, tall), *divisors}))
    deep = None if roles.deep is None else room.choose("deep", up_to((1, 2, 4, 7), roles.extent(roles.deep)))
    width = room.choose("width", vector_widths(wide, lanes))
    block = room.choose("block", column_blocks(wide, lanes) if shape.order == "rows" else row_blocks(tall))
    whole_window = shape.copies and roles.steps[-1] in roles.windows
    unroll = room.choose("unroll", (1,) if whole_window else up_to(UNROLLS, stage.extents[roles.steps[-1]]))
    room.limit_tile(stage.bits, ("rows", "deep"), "width", "unroll")
    whole, limit = ("width", wide) if shape.order == "rows" else ("rows", tall)
    room.limit("blocks are whole tiles", lambda v: v["block"] % v[whole] == 0)
    room.limit("blocks fit the axis", lambda v: v["block"] < 2 * np.maximum(limit, v[whole]))
    if shape.copies:
        copies, one = prod(roles.extent(axis) for axis in roles.windows), np.ones(1)

        def few_copies(values: Columns) -> Mask:
            vectors = values["rows"] * values.get("deep", one) * np.ceil(values["width"] / lanes)
            return np.asarray(copies * vectors * values["unroll"] <= MOST_UNROLLED)

        room.limit(f"copies of a window have at most {MOST_UNROLLED} vector operations", few_copies)
    return _Tile(rows, deep, width, block, unroll)


def _pack(packed: Stage, roles: Roles, width: Decision) -> Axis:
    """Lay the operand out as panels of the tile's width, contiguous as the reduction reads it; returns the panels."""
    size = width.as_expr()  # in an index expression, so that the layout follows the decision
    axes = [terms[0][0] if terms else "" for terms in roles.operand.dims]
    along = axes.index(roles.vector)
    ranks = {axis: n for n, axis in enumerate(("", *roles.batch, *roles.steps))}
    others = sorted((d for d in range(len(axes)) if d != along), key=lambda d: ranks.get(axes[d], 0))
    outer = [d for d in others if axes[d] not in roles.steps]
    inner = [d for d in others if axes[d] in roles.steps]

    def panels(*index: Expr) -> list[Expr]:
        first, rest = [index[d] for d in outer], [index[d] for d in inner]
        return [*first, index[along] // size, *rest, index[along] % size]

    made = packed.transform_layout(panels)
    *loops, lane = made
    if not roles.contiguous:
        places = {d: place for place, d in enumerate(outer)} | {d: len(outer) + 1 + n for n, d in enumerate(inner)}
        near = max((d for d in others if roles.operand.shape[d] != 1 and d > along), default=None)
        if near is not None:  # rows along memory are read whole, and turned around in registers
            rows = loops[places[near]]
            packed.reorder(*(axis for axis in loops if axis is not rows), lane, rows)
    packed.vectorize(lane)
    return made[len(outer)]


def _vectors_last(acc: Stage, roles: Roles, width: Decision) -> dict[str, str]:
    """Store the results of a tile with vectors innermost; returns the loops of each axis, that of vectors last."""
    size = width.as_expr()
    spatial = roles.stage.spatial
    at = spatial.index(roles.vector)

    def vectors(*index: Expr) -> list[Expr]:
        blocks = [index[n] // size if n == at else index[n] for n in range(len(spatial))]
        return [*blocks, index[at] % size]

    made = [str(axis) for axis in acc.transform_layout(vectors)]
    named = dict(zip(spatial, made, strict=False))
    return {**named, f"{roles.vector} block": named[roles.vector], roles.vector: made[-1]}


def _schedule_output(
    out: Stage, roles: Roles, shape: Shape, tile: _Tile, names: dict[str, str]
) -> tuple[Axis | str, Axis | str]:
    """Cut the output into blocks and tiles; returns the loop over blocks, and the one around a tile."""
    deep = roles.deep
    vector = names[roles.vector]
    block: Axis | str
    rest: Axis | str = vector
    batch: list[Axis | str] = [names[axis] for axis in roles.batch]
    around: list[Axis | str] = [names[axis] for axis in roles.around if axis != deep]
    inside: list[Axis | str] = []
    if deep is not None and tile.deep is not None:
        outer, inner = out.split(names[deep], tile.deep, tail="peel")
        around.append(outer)
        inside.append(inner)
    rows: list[Axis | str] = [] if roles.rows is None else [names[roles.rows]]
    if shape.order == "rows":
        block, rest = out.split(vector, tile.block)
    elif rows:
        first, rest_of_rows = out.split(rows[0], tile.block)
        block, rows = first, [rest_of_rows]
    else:
        block, rest = out.split(vector, tile.block)
    tiles: list[Axis | str] = []
    for row in rows:
        outer, inner = out.split(row, tile.rows, tail="peel")
        tiles.append(outer)
        inside.append(inner)
    columns, lanes = out.split(rest, tile.width, tail="peel")
    tiles = [*tiles, columns] if shape.order == "rows" else [columns, *tiles]
    if shape.order == "rows":
        out.reorder(*batch, block, *around, *tiles, *inside, lanes)
    else:
        out.reorder(*batch, *around, block, *tiles, *inside, lanes)
    _annotate_tile(out, roles, names, inside, lanes)
    return _share(out, shape, batch, block, around, tiles), tiles[-1]


def _annotate_tile(out: Stage, roles: Roles, names: dict[str, str], inside: Sequence[Axis | str], lanes: Axis) -> None:
    """Vectors run along the output's memory, whatever the sum's vectors run along."""
    last = roles.stage.spatial[-1]
    along_rows = roles.vector != last and roles.rows == last
    unrolled = inside[:-1] if along_rows else inside
    for axis in unrolled:
        out.unroll(axis)
    if along_rows:
        out.vectorize(inside[-1])  # the loop over channels inside: turned around in registers
    elif roles.vector == last:
        out.vectorize(lanes)


def _share(
    out: Stage,
    shape: Shape,
    batch: Sequence[Axis | str],
    block: Axis | str,
    around: Sequence[Axis | str],
    tiles: Sequence[Axis | str],
) -> Axis | str:
    """Run loops in parallel; returns the loop over blocks, or what it has become."""
    outer = [*batch, block] if shape.order == "rows" else [*batch, *around, block]
    further = [*around, *tiles[:-1]] if shape.order == "rows" else list(tiles[:-1])
    match shape.parallel:
        case "block":
            shared = out.fuse(*outer) if len(outer) > 1 else block
            out.parallel(shared)
            return shared
        case "tile" if shape.pack == "block" and further:
            out.parallel(out.fuse(*further) if len(further) > 1 else further[0])
        case "tile":
            loops = [*outer, *further]
            shared = out.fuse(*loops) if len(loops) > 1 else loops[0]
            out.parallel(shared)
            return shared
    return block


def _schedule_sum(acc: Stage, roles: Roles, shape: Shape, tile: _Tile, inner: dict[str, str]) -> None:
    """Sum a tile in registers: one step multiplies a column of rows with a row of vectors."""
    *outer_steps, last = roles.steps
    ko, ki = acc.split(last, tile.unroll)
    deep = roles.deep
    rows = [inner[axis] for axis in (deep, roles.rows) if axis is not None]
    blocks = [inner[name] for name in (f"{roles.vector} block",) if name in inner]
    spatial = [inner[axis] for axis in roles.stage.spatial if axis not in (deep, roles.rows, roles.vector)]
    acc.reorder(*spatial, *outer_steps, ko, ki, *rows, *blocks, inner[roles.vector])
    if shape.copies:
        for window in roles.windows:
            acc.unroll(ko if window == last else window)
    acc.unroll(ki)
    for unrolled in (*rows, *blocks):
        acc.unroll(unrolled)
    acc.vectorize(inner[roles.vector])
