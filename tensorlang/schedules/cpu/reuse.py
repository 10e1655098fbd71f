"""Reductions that use what they read several times: products of matrices, convolutions, and whatever is like them.

The sketches are the loops around a micro-kernel: a register tile of rows times vectors, its reduction inside, and
blocks of columns or of rows around it. The operand that runs along the vectors is packed into panels of the tile's
width where that pays. Elementwise stages behind the reduction are computed in its tile. Where a panel of all terms
does not stay in the second cache, the terms may be summed in parts, which are added up in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from math import ceil, prod

import numpy as np

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Call, Expr, walk
from tensorlang.schedule.stage import Stage
from tensorlang.schedules.candidates import (
    ROWS,
    UNROLLS,
    column_blocks,
    part_sizes,
    row_blocks,
    up_to,
    vector_widths,
)
from tensorlang.schedules.cpu.moves import schedule_alone
from tensorlang.schedules.cpu.producers import place_producers
from tensorlang.schedules.cpu.product_plan import shares
from tensorlang.schedules.cpu.register_tile import register_tile
from tensorlang.schedules.cpu.rows import partial_results
from tensorlang.schedules.recognise import Group
from tensorlang.schedules.recognise import Stage as Described
from tensorlang.schedules.roles import THIN, Roles, all_roles
from tensorlang.schedules.room import MOST_UNROLLED, Columns, Form, Mask, Room, as_index
from tensorlang.target.spec import Target
from tensorlang.te.axis import Axis

_SHORT = 128  # divisors of axes up to this extent are tried as rows
_LEAST_TERMS = 96  # that are worth reading and writing the output for
_PACKING, _PACKING_APART = 512, 160  # uses of a vector from which on a copy pays; fewer, where rows share sets
_PAGE = 4096
_WORTH_THREADS = 1 << 20  # operations
_FEW_COPIES = 128  # vector operations of a window that is written out
_CHAINS = 8  # independent sums that keep the multiply-add units busy
_SHARE = 4  # of the second cache, a panel of all terms may take one part in so many before parts of it are tried


@dataclass(frozen=True, slots=True)
class Shape:
    """One shape of schedule.

    `order`: `rows` walks row tiles, and column tiles inside a block of columns; `columns` the other way round.
    `pack`: nothing, all of the operand at the start, or a block of columns at a time. `parallel`: the loops that
    threads share, of `block`s or of `tile`s, if any. `copies`: windows are written out. `inline`: elementwise stages
    in front are computed where they are read. `parts`: some of the terms are summed for all tiles of a block before
    the next ones.
    """

    pack: str
    order: str
    parallel: str
    copies: bool
    inline: bool
    parts: bool


def reuse_forms(target: Target, group: Group) -> list[Form]:
    """Forms for a reduction with reuse; none for other stages."""
    found: list[Form] = []
    several = all_roles(group.main, target.lanes(group.main.bits))
    for roles in several:
        plan = plan_of(roles, target)
        for shape in sorted(_shapes(target, group, roles), key=lambda shape: shape != plan.shape):
            words = [f"along-{roles.vector}" if len(several) > 1 else "", f"pack-{shape.pack}", shape.order]
            words += [shape.parallel, "copies" if shape.copies else "", "inline" if shape.inline else ""]
            words += ["parts" if shape.parts else ""]
            name = ".".join(("reuse", *filter(None, words)))
            why = f"{roles.reuse} results use a vector of {roles.operand.buffer} along {roles.vector}"
            body = partial(schedule_reuse, group=group, roles=roles, shape=shape, usual=plan.usual)
            found.append(Form(name, body, why=why))
    return found


def is_used_again(stage: Described, lanes: int) -> bool:
    """Whether several results use a vector, or the windows of neighbours overlap."""
    return any(roles.reuse > 1 or roles.windows for roles in all_roles(stage, lanes)[:1])


def slides(stage: Described, lanes: int) -> bool:
    """Whether a vector of results reads neighbours of what the next term reads, however many terms there are.

    Rows that begin where data say slide along no memory: each has terms of its own.
    """
    return any(
        _slides_along(roles, roles.vector) and roles.extent(roles.vector) >= lanes
        for roles in all_roles(stage, lanes)[:1]
    )


def _slides_along(roles: Roles, axis: str) -> bool:
    """Whether an axis of the reduction is added to another where something is read."""
    places = ([name for name, _ in terms] for access in roles.stage.reads for terms in access.dims)
    return any(axis in names and any(step in names for step in roles.sliding) for names in places)


def _shapes(target: Target, group: Group, roles: Roles) -> Iterator[Shape]:
    packs = ["none"] if roles.contiguous else []
    if roles.packable and roles.reuse >= THIN:
        packs = ["block", "all", *packs]
    shared = ("",) if target.cores == 1 else ("block", "tile")
    windows = (True, False) if roles.windows else (False,)
    inline = (False, True) if group.producers else (False,)
    parts = (False, True) if _is_deep(target, roles) else (False,)
    for copies, inlined, in_parts, pack in product(windows, inline, parts, packs):
        for order in ("rows", "columns") if pack != "block" and roles.rows else ("rows",):
            for parallel in shared:
                yield Shape(pack, order, parallel, copies, inlined, in_parts)


def _is_deep(target: Target, roles: Roles) -> bool:
    """Whether a panel of all terms takes much of the second cache, and there are parts to cut them into."""
    bits = roles.stage.bits
    panel = prod(map(roles.extent, roles.steps)) * 2 * target.lanes(bits) * bits // 8
    return bool(target.caches) and panel > target.second_cache // _SHARE and bool(_depths(roles))


def _depths(roles: Roles) -> tuple[int, ...]:
    """How much of the last step is summed at a time."""
    *outer, last = map(roles.extent, roles.steps)
    return part_sizes(last, ceil(_LEAST_TERMS / prod(outer)))


@dataclass(frozen=True, slots=True)
class Plan:
    """The shape that is usual for some roles on a machine, and its sizes."""

    shape: Shape
    usual: Mapping[str, int]


def plan_of(roles: Roles, target: Target) -> Plan:
    """Choose as for a product of matrices: the tile by registers, blocks by the second cache, shares by cores."""
    stage, size = roles.stage, max(1, roles.stage.bits // 8)
    tall, wide = (max(1, roles.extent(axis)) for axis in (roles.rows, roles.vector))
    depth = prod(map(roles.extent, roles.steps))
    deep = 1 if roles.deep is None else roles.extent(roles.deep)
    tile = register_tile(tall * deep, wide, target, stage.bits)
    rows = min(tile.rows, tall)
    vectors = -(-tile.width // target.lanes(stage.bits))
    panels, half = ceil(wide / tile.width), target.second_cache // 2
    is_deep = _is_deep(target, roles) and depth * tile.width * size > half
    summed = depth if not is_deep else max(_LEAST_TERMS, half // (tile.width * size))
    cores = target.cores if 2 * stage.points >= _WORTH_THREADS else 1
    others = prod(roles.extent(axis) for axis in roles.batch)
    fitting = max(1, half // (summed * tile.width * size))
    shared, block = shares(others, panels, ceil(tall * deep / rows), fitting, cores)
    apart = wide * size % _PAGE == 0
    packs = roles.packable and roles.reuse >= (_PACKING_APART if apart else _PACKING)
    pack = "block" if packs or not roles.contiguous else "none"
    copies = prod(roles.extent(axis) for axis in roles.windows)
    whole = bool(roles.windows) and copies * rows * vectors <= _FEW_COPIES and not _calls(stage)
    parallel = {"columns": "block", "rows": "tile", "": ""}[shared]
    width, last, more = min(tile.width, wide), roles.extent(roles.steps[-1]), max(1, _CHAINS // (rows * vectors))
    usual = {"rows": rows, "deep": max(1, min(tile.rows // rows, deep)), "width": width, "block": block * width}
    usual |= {"depth": min(summed, last), "unroll": min(more, last), "beside": min(more, roles.extent(roles.beside))}
    return Plan(Shape(pack, "rows", parallel, whole, False, is_deep), usual)


def _calls(stage: Described) -> bool:
    """Whether the terms of a reduction call mathematical functions, which are a lot of code."""
    reduction = stage.op.reduction
    return reduction is not None and any(isinstance(node, Call) for s in reduction.sources for node in walk(s))


@dataclass(frozen=True, slots=True)
class _Tile:
    """The open numbers of a tile: `deep` rows of the next axis are taken too, where rows are short.

    `beside`: so many vectors of another axis are, where vectors are narrow. `depth`: how much of the last step is
    summed at a time, where that is not all.
    """

    rows: int
    deep: int | None
    width: int
    block: int
    unroll: int
    beside: int | None
    depth: int | None


@dataclass(frozen=True, slots=True)
class _Sum:
    """The stage `host` that is cut into tiles, the stage that sums a tile of it, over which `steps`, and the loop of
    the host over `part`s of the terms, if any.
    """

    host: Stage
    tile: Stage
    steps: tuple[str, ...]
    part: Axis | None


def schedule_reuse(room: Room, group: Group, roles: Roles, shape: Shape, usual: Mapping[str, int]) -> None:
    """Write the schedule of a shape."""
    s = room.s
    place_producers(room, group, shape.inline)
    for stage in group.between:
        s[stage.name].compute_inline()
    tile = _decide(room, roles, shape, usual)
    total = _sum(room, group, roles, tile)
    acc, host = total.tile, total.host
    packed = s[s.cache_read(roles.operand.buffer, "global", [acc.name])] if shape.pack != "none" else None
    panel = None if packed is None else _pack(packed, roles, tile.width)
    names = dict(zip(group.main.spatial, (str(a) for a in host.op.axis), strict=True))
    transposed = roles.vector != group.main.spatial[-1]
    inner = _vectors_last(acc, roles, tile.width) if transposed else {str(a): str(a) for a in acc.op.axis}
    block, around = _schedule_output(total, roles, shape, tile, names)
    acc.compute_at(host, around)
    _schedule_sum(total, roles, shape, tile, inner)
    if packed is not None and panel is not None:
        if shape.pack == "block":
            packed.compute_at(host, block)
        if shape.parallel and (shape.pack, shape.parallel) != ("block", "block"):
            packed.parallel(panel)


def _sum(room: Room, group: Group, roles: Roles, tile: _Tile) -> _Sum:
    """Make the stage that sums a tile: of all terms, in the loops of the output; or of a part, which is added to it.

    What follows a sum of parts runs on its own: it takes little time beside so many terms.
    """
    s, main = room.s, room.s[group.main.name]
    if tile.depth is None:
        if group.main is group.output:
            return _Sum(main, s[s.cache_write(main.name, "local")], roles.steps, None)
        main.set_scope("local")
        return _Sum(s[group.output.name], main, roles.steps, None)
    *outer, last = roles.steps
    part, inner = main.split(last, factor=tile.depth)
    acc = s[partial_results(s, main.name, str(part), 0)]
    acc.set_scope("local")
    if group.main is not group.output:
        schedule_alone(room, group.output)
    return _Sum(main, acc, (*outer, str(inner)), main.op.reduce_axis[0])


def _decide(room: Room, roles: Roles, shape: Shape, usual: Mapping[str, int]) -> _Tile:
    stage, lanes = roles.stage, room.target.lanes(roles.stage.bits)
    tall, wide = roles.extent(roles.rows), roles.extent(roles.vector)
    divisors = [n for n in range(1, 29) if tall % n == 0] if tall <= _SHORT else []
    whole_window = shape.copies and roles.steps[-1] in roles.windows

    def choose(name: str, candidates: Iterable[int]) -> int:
        return room.choose(name, candidates, usual[name])

    rows = choose("rows", sorted({*up_to(ROWS, tall), *divisors}))
    deep = None if roles.deep is None else choose("deep", up_to((1, 2, 4, 7), roles.extent(roles.deep)))
    width = choose("width", vector_widths(wide, lanes))
    block = (
        choose("block", column_blocks(wide, lanes)) if shape.order == "rows" else room.choose("block", row_blocks(tall))
    )
    unrolls = up_to(UNROLLS, stage.extents[roles.steps[-1]])
    unroll = room.choose("unroll", (1,)) if whole_window else choose("unroll", unrolls)
    beside = None if roles.beside is None else choose("beside", up_to((1, 2, 3, 4), roles.extent(roles.beside)))
    depth = choose("depth", _depths(roles)) if shape.parts else None
    room.limit_tile(stage.bits, ("rows", "deep"), "width", "unroll")
    whole, limit = ("width", wide) if shape.order == "rows" else ("rows", tall)
    room.limit("blocks are whole tiles", lambda v: v["block"] % v[whole] == 0)
    room.limit("blocks fit the axis", lambda v: v["block"] < 2 * np.maximum(limit, v[whole]))
    if shape.copies:
        copies, one = prod(roles.extent(axis) for axis in roles.windows), np.ones(1)

        def few_copies(values: Columns) -> Mask:
            tall = values["rows"] * values.get("deep", one) * values.get("beside", one)
            vectors = tall * np.ceil(values["width"] / lanes)
            return np.asarray(copies * vectors * values["unroll"] <= MOST_UNROLLED)

        room.limit(f"copies of a window have at most {MOST_UNROLLED} vector operations", few_copies)
    return _Tile(rows, deep, width, block, unroll, beside, depth)


def _pack(packed: Stage, roles: Roles, width: int) -> Axis:
    """Lay the operand out as panels of the tile's width, contiguous as the reduction reads it; returns the panels."""
    size = as_index(width)  # in an index expression, so that the layout follows the decision
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


def _vectors_last(acc: Stage, roles: Roles, width: int) -> dict[str, str]:
    """Store the results of a tile with vectors innermost; returns the loops of each axis, that of vectors last."""
    size = as_index(width)
    spatial = [str(axis) for axis in acc.op.axis]
    at = spatial.index(roles.vector)

    def vectors(*index: Expr) -> list[Expr]:
        blocks = [index[n] // size if n == at else index[n] for n in range(len(spatial))]
        return [*blocks, index[at] % size]

    made = [str(axis) for axis in acc.transform_layout(vectors)]
    named = dict(zip(spatial, made, strict=False))
    return {**named, f"{roles.vector} block": named[roles.vector], roles.vector: made[-1]}


def _schedule_output(
    total: _Sum, roles: Roles, shape: Shape, tile: _Tile, names: dict[str, str]
) -> tuple[Axis | str, Axis | str]:
    """Cut the output into blocks and tiles; returns the loop over blocks (of parts), and the one around a tile."""
    out, deep = total.host, roles.deep
    parts: list[Axis | str] = [] if total.part is None else [total.part]
    vector = names[roles.vector]
    block: Axis | str
    rest: Axis | str = vector
    batch: list[Axis | str] = [names[axis] for axis in roles.batch]
    around: list[Axis | str] = [names[axis] for axis in roles.around if axis != deep]
    inside: list[Axis | str] = []
    if roles.beside is not None and tile.beside is not None:
        outer, inner = out.split(names[roles.beside], tile.beside, tail="peel")
        batch[roles.batch.index(roles.beside)] = outer
        inside.append(inner)
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
        out.reorder(*batch, block, *parts, *around, *tiles, *inside, lanes)
    else:
        out.reorder(*batch, *around, block, *parts, *tiles, *inside, lanes)
    _annotate_tile(out, roles, names, inside, lanes)
    block = _share(out, shape, batch, block, around, tiles)
    return (parts or [block])[0], tiles[-1]


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
        case "tile" if (shape.pack == "block" or shape.parts) and further:
            out.parallel(out.fuse(*further) if len(further) > 1 else further[0])
        case "tile":
            loops = [*outer, *further]
            shared = out.fuse(*loops) if len(loops) > 1 else loops[0]
            out.parallel(shared)
            return shared
    return block


def _schedule_sum(total: _Sum, roles: Roles, shape: Shape, tile: _Tile, inner: dict[str, str]) -> None:
    """Sum a tile in registers: one step multiplies a column of rows with a row of vectors."""
    acc = total.tile
    *outer_steps, last = total.steps
    ko, ki = acc.split(last, tile.unroll)
    deep = roles.deep
    rows = [inner[axis] for axis in (roles.beside, deep, roles.rows) if axis is not None]
    blocks = [inner[name] for name in (f"{roles.vector} block",) if name in inner]
    of_tile = {roles.beside, deep, roles.rows, roles.vector, f"{roles.vector} block"}
    spatial = [axis for name, axis in inner.items() if name not in of_tile]
    acc.reorder(*spatial, *outer_steps, ko, ki, *rows, *blocks, inner[roles.vector])
    if shape.copies:
        for window in roles.windows:
            acc.unroll(ko if window == last else window)
    acc.unroll(ki)
    for unrolled in (*rows, *blocks):
        acc.unroll(unrolled)
    acc.vectorize(inner[roles.vector])
