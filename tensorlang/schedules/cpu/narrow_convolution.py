"""The schedule of convolutions of narrow numbers: a register tile of pixels by channels, made by dot instructions.

Data are copied once, with their padding, so that every window is whole and no tile has conditions. As in products
(`quantized_schedule`), sums are whole panels wide, and the stage behind them takes the channels that there are.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Call, variables, walk
from tensorlang.schedule import Schedule
from tensorlang.schedule.stage import Stage
from tensorlang.schedules.accesses import bytes_apart
from tensorlang.schedules.anchor import Anchor, axes_of
from tensorlang.schedules.candidates import ROWS, powers, up_to
from tensorlang.schedules.cpu.matrix_tiles import Pixels, multiply_tiles, tiles_of
from tensorlang.schedules.cpu.narrow_product import fit_registers, sum_words
from tensorlang.schedules.cpu.producers import anchor_of, place_producers
from tensorlang.schedules.cpu.register_tile import best_part, side_by_side
from tensorlang.schedules.cpu.shares import worth_threads
from tensorlang.schedules.recognise import Group
from tensorlang.schedules.recognise import Stage as Described
from tensorlang.schedules.room import Room
from tensorlang.schedules.words import data_and_panels, panel_read
from tensorlang.target.llvm.instructions import Tiles
from tensorlang.target.spec import Target
from tensorlang.te.axis import Axis, extent_of
from tensorlang.te.operation import ComputeOp, loads

_PANELS_TOGETHER = 8
"""Panels whose sums are made before what follows them: tiles of 28 pixels stay in the first cache."""
_SHORT = frozenset({"round"})
"""Functions of one instruction, which copies of a tile may have."""
_OTHERS = 4
"""Lines that come by while one of each pixel is in use: of panels, and of what follows."""
_CHAINS = 12
"""The fewest sums at once: half a tile loads as many words of panels, and each dot waits for that before."""
_TURNS = 4
"""Of each thread, so that one that is held up does not hold up all."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`rows` and `columns` of pixels of a tile; `block`: panels that stay in the second cache; `shared`: the axis whose
    outer loop threads share, if any; `chunk`: the rows that a thread takes at a time, 0 for those of a tile.
    """

    rows: int
    columns: int
    block: int
    shared: str
    chunk: int


def plan_of(op: ComputeOp, target: Target, tiles: Tiles | None = None, apart: int = 0) -> Plan:
    """Choose the sizes for the sums of a convolution, around those of tiles of the matrix unit.

    `apart`: the bytes from a pixel of the output to the next one, if known.
    """
    names = ("nn", "gg", "pp", "yy", "xx", "lane", "ry", "rx", "rk")
    axes = zip(names, (*op.axes, *op.reduce_axes), strict=True)
    extents = {name: extent_of(axis.extent) or 1 for name, axis in axes}
    panels, high, wide, width = (extents[name] for name in ("pp", "yy", "xx", "lane"))
    vectors = max(1, width // target.lanes(32))
    most = max(1, (target.vector_registers - 1) // vectors - 1)
    weight = data_and_panels(op)[1].buffer
    if tiles is None:
        most = most if _stays_near(op, most, apart) or vectors * (most // 2) < _CHAINS else most // 2
        columns = best_part(wide, 1, most, vectors)
        whole = columns == wide and op.reduction is not None and op.reduction.where is None
        rows = best_part(high, columns, max(1, most // columns), vectors) if whole else 1
    else:
        rows, columns = tiles.rows
    panel = prod(extents[name] for name in ("ry", "rx", "rk", "lane")) * dtypes.info(weight.dtype).bytes
    cached = max(1, target.second_cache // 2 // panel)
    block = ceil(panels / ceil(panels / cached))
    if not worth_threads(extents, target):
        return Plan(rows, columns, block, "", 0)
    count = ceil(high / rows)
    counts = {"nn": extents["nn"], "gg": extents["gg"], "pp": ceil(panels / block), "yy": count}
    shared = max(counts, key=lambda name: _evenness(counts[name], target.cores))
    chunk = _chunk(count, target.cores) if shared == "yy" else 1
    return Plan(rows, columns, block, shared, rows * chunk if chunk > 1 else 0)


def _stays_near(op: ComputeOp, pixels: int, apart: int) -> bool:
    """Whether the first cache keeps the lines of pixels side by side while others come by.

    Those of panels fill half of it, and those of what follows are written, and often read, a part at a time.
    """
    data, _ = data_and_panels(op)
    return _OTHERS * pixels <= min(side_by_side(bytes_apart(data, op.axes[-2].name)), side_by_side(apart))


def _chunk(tiles: int, cores: int) -> int:
    """Tiles that a thread takes at a time: as many as leave several turns for each, and no thread much to wait for."""

    def longest(chunk: int) -> tuple[int, int]:
        return ceil(ceil(tiles / chunk) / cores) * chunk, -chunk

    return min(range(1, max(1, tiles // (_TURNS * cores)) + 1), key=longest)


def _evenness(count: int, cores: int) -> float:
    """The share of time in which all cores are busy, when they share so many turns."""
    return count / (cores * ceil(count / cores))


def schedule_convolution(room: Room, group: Group) -> None:
    """Schedule the sums, and what follows them, which is run behind each tile."""
    s, anchor, name = room.s, anchor_of(room, group), group.main.name
    place_producers(room, group, inline=False)
    tiles = tiles_of(group.main.op, Pixels("yy", "xx", ("ry", "rx")), room.target)
    apart = group.output.extents[group.output.spatial[-1]] * group.output.output.itemsize
    plan = _decide(room, group.main, plan_of(group.main.op, room.target, tiles, apart), tiles)
    together = tiles is not None and _reads_images(group)
    if together:
        plan = replace(plan, block=min(plan.block, _PANELS_TOGETHER))
    if tiles is None and (image := _image_of(s, anchor, group)) is not None:
        _sum_in_registers(s, anchor, group.main, plan, image)
        return
    stage, sizes = s[name], {"nn": 1, "gg": 1, "pp": 1, "yy": plan.rows, "xx": plan.columns}
    if plan.chunk:
        stage.transform_layout(lambda n, g, p, y, x, lane: (n, g, p, y // plan.chunk, y % plan.chunk, x, lane))
        sizes = {"nn": 1, "gg": 1, "pp": 1, "yy": 1, "in chunk": plan.rows, "xx": plan.columns}
    local = s[s.cache_write(name, "local") if tiles is None else name]
    nn, gg, pp, *chunks, yy, xx, lane = stage.op.axis
    rows, row = stage.split(yy, factor=plan.rows, tail="peel")
    columns, column = stage.split(xx, factor=plan.columns, tail="peel")
    block, inside = stage.split(pp, factor=plan.block)
    stage.reorder(nn, gg, block, *chunks, rows, columns, inside, row, column, lane)
    if tiles is not None:
        multiply_tiles(stage, tiles, [row, column], lane)
    else:
        for axis in (row, column):
            stage.unroll(axis)
        stage.vectorize(lane)
        local.compute_at(stage, inside)
        sum_words(local, anchor.target, local.op.axis[-3:-1])
        _copy_columns(local, group.main.op)
    out = s[anchor.output]
    out.reverse_compute_at(stage, columns if together else inside)
    sizes["pp"] = plan.block if together else 1
    _schedule_output(s, anchor, (group.between or (group.output,))[0].op, group.main.op)
    for dim, (around, size) in enumerate(sizes.items()):
        if around != plan.shared:
            stage.fold_storage(name, dim, size)
    if plan.shared:
        stage.parallel({"nn": nn, "gg": gg, "pp": block, "yy": [*chunks, rows][0]}[plan.shared])


@dataclass(frozen=True, slots=True)
class _Image:
    """The axes of an output whose channels lie side by side, in whole panels."""

    batch: str
    y: str
    x: str
    channel: str


def _image_of(s: Schedule, anchor: Anchor, group: Group) -> _Image | None:
    """The output, where whole panels of it are made of the sums of a tile, by short functions."""
    reader, sums = (group.between or (group.output,))[0].op, group.main
    names, read = [axis.name for axis in reader.axes], panel_read(reader, sums.op)
    *_, groups, _, _, _, width = (sums.extents[axis] for axis in sums.spatial)
    if read is None or groups > 1 or len(names) != 4:
        return None
    at = dict(zip(names, axes_of(s, anchor.output), strict=True))
    along = [next(iter(variables(read.index[d])), "") for d in (0, -3, -2, -1)]
    whole = (group.output.extents[group.output.spatial[-1]] or 1) % width == 0
    calls = {node.name for body in s[anchor.output].op.body for node in walk(body) if isinstance(node, Call)}
    return _Image(*(at[name] for name in names)) if along == names and whole and calls <= _SHORT else None


def _sum_in_registers(s: Schedule, anchor: Anchor, sums: Described, plan: Plan, image: _Image) -> None:
    """Make the sums in tiles of the output, which never leave the registers.

    A tile is copied for each pixel: dot instructions start one a cycle, and a vector of sums that is stored takes as
    long as one and a half of them.
    """
    out, total = s[anchor.output], s[sums.name]
    width = sums.extents[sums.spatial[-1]]
    rows, row = out.split(image.y, factor=plan.rows, tail="peel")
    columns, column = out.split(image.x, factor=plan.columns, tail="peel")
    panels, lane = out.split(image.channel, factor=width)
    block, inside = out.split(panels, factor=plan.block)
    out.reorder(image.batch, block, rows, columns, inside, row, column, lane)
    for axis in (row, column):
        out.unroll(axis)
    out.vectorize(lane)
    total.compute_at(out, inside)
    total.set_scope("local")
    sum_words(total, anchor.target, total.op.axis[-3:-1])
    _copy_columns(total, sums.op)
    shares: dict[str, Axis | str] = {"nn": image.batch, "pp": block, "yy": rows}
    if plan.shared in shares:
        out.parallel(shares[plan.shared])


def _copy_columns(total: Stage, sums: ComputeOp) -> None:
    """Copy the loop over columns of the window, some of whose pixels are padding: no other loop asks which."""
    column = sums.reduce_axes[1].name
    where = None if sums.reduction is None else sums.reduction.where
    if where is not None and column in variables(where):
        total.unroll(column)


def _reads_images(group: Group) -> bool:
    """Whether what follows the sums reads other images: then it goes through memory in the order of its own."""
    stages = {stage.name for stage in (group.main, *group.between, *group.producers)}
    size = prod(group.output.extents.values())
    return any(
        load.buffer.name not in stages and prod(extent_of(e) or 0 for e in load.buffer.shape) == size
        for stage in (*group.between, group.output)
        for load in loads(stage.op)
    )


def _decide(room: Room, sums: Described, plan: Plan, tiles: Tiles | None) -> Plan:
    """The sizes of a tile: in an open room, candidates around those of the plan; tiles of the matrix unit are given."""
    *_, panels, high, wide, _ = (sums.extents[axis] for axis in sums.spatial)
    block = room.choose("block", powers(panels), plan.block)
    if tiles is not None:
        return replace(plan, block=block)
    rows = room.choose("rows", up_to(ROWS, high) if not plan.chunk else (), plan.rows)
    columns = room.choose("columns", up_to(ROWS, wide), plan.columns)
    fit_registers(room, sums, ("rows", "columns"))
    return replace(plan, rows=rows, columns=columns, block=block)


def _schedule_output(s: Schedule, anchor: Anchor, reader: ComputeOp, sums: ComputeOp) -> None:
    """Run along memory; where that is along pixels, squares of pixels and channels are turned around in registers."""
    out, names, read = s[anchor.output], [axis.name for axis in reader.axes], panel_read(reader, sums)
    axis = dict(zip(names, axes_of(s, anchor.output), strict=True))
    if read is not None and variables(read.index[-2]) == {names[-1]}:
        y, x, o = (next(iter(variables(read.index[n])), "") for n in (-3, -2, -1))
        out.reorder(*(axis[name] for name in (y, x, o) if name))
    out.vectorize(axis[names[-1]])
