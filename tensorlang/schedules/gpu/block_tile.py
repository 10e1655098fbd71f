"""Loops of a block of threads: an output in tiles by blocks, warps and lanes, and copies that all threads make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Expr
from tensorlang.ir.thread_tags import THREADS
from tensorlang.schedule import Decision
from tensorlang.schedule.stage import Stage
from tensorlang.schedules.gpu.product_plan import Side
from tensorlang.te.axis import Axis, extent_of


@dataclass(frozen=True, slots=True)
class Threads:
    """The threads of a block along x, y and z, the innermost loop that is bound to them, and the loops over tiles."""

    extents: tuple[int, int, int]
    loop: Axis
    blocks: Mapping[str, Axis]

    @property
    def count(self) -> int:
        """How many they are."""
        return prod(self.extents)


def tiled(
    out: Stage, sides: Mapping[str, Side], grid: Sequence[tuple[str, Sequence[str]]], together: int = 1
) -> Threads:
    """Cut axes of a stage, in their order, into tiles of blocks, and bind the parts.

    `grid` gives the axes that each axis of blocks runs over, whole or by tiles: outermost first, and every axis of the
    stage once. The lanes of the last two of `sides` are threads along y and x, all other lanes and the warps threads
    along z. Inside are runs, in the order of the axes, then their elements. The last axis is stored in vectors.
    With several rows of tiles `together`, the last two of `grid` have one axis each, and run as `bind_together` says.
    """
    state = out.schedule.state
    whole = all(
        (extent_of(state.axis(out.name, n).extent) or 1) % side.width == 0 for n, side in list(sides.items())[-1:]
    )
    known = all(extent_of(state.axis(out.name, n).extent) is not None for n in list(sides)[-1:])
    parts = {name: _parts(out, name, side) for name, side in sides.items()}
    *more, second, first = (part.lane for part in parts.values())
    deep = [*(part.warp for part in parts.values()), *more]
    blocks = [(tag, [parts[n].block if n in parts else _axis(out, n) for n in names]) for tag, names in grid]
    inside = [*(part.quad for part in parts.values()), *(part.element for part in parts.values())]
    out.reorder(*(axis for _, axes in blocks for axis in axes), *deep, second, first, *inside)
    made = {name: part.block for name, part in parts.items()} | _bind_blocks(out, blocks, together)
    last = out.fuse(*deep) if len(deep) > 1 else deep[0]
    for axis, tag in zip((first, second, last), THREADS, strict=True):
        out.bind(axis, tag)
    for part, side in zip(parts.values(), sides.values(), strict=True):
        if side.quads > 1:
            out.unroll(part.quad)
    *others, element = (part.element for part in parts.values())
    for axis in others:
        out.unroll(axis)
    if whole and known:
        out.vectorize(element)
    else:
        out.unroll(element)
    kinds = list(sides.values())
    depth = prod(side.warps for side in kinds) * prod(side.lanes for side in kinds[:-2])
    return Threads((kinds[-1].lanes, kinds[-2].lanes, depth), first, made)


def bind_together(stage: Stage, rows: Axis, columns: Axis, together: int | Decision) -> dict[str, Axis]:
    """Bind two neighbouring loops over tiles to blocks, so many rows of tiles side by side, column by column.

    Blocks start along x first: with one row at a time the columns are along x, else the columns and the rows of a group
    in one. Groups are along y. Returns the two loops by their tags.
    """
    if isinstance(together, Decision) or together > 1:
        rows, member = stage.split(rows, factor=together)
        stage.reorder(rows, columns, member)
        columns = stage.fuse(columns, member)
    stage.bind(rows, "blockIdx.y")
    stage.bind(columns, "blockIdx.x")
    return {"blockIdx.y": rows, "blockIdx.x": columns}


@dataclass(frozen=True, slots=True)
class _Parts:
    """The loops that an axis was cut into."""

    block: Axis
    warp: Axis
    quad: Axis
    lane: Axis
    element: Axis


def _parts(out: Stage, name: str, side: Side) -> _Parts:
    block, inner = out.split(name, factor=side.extent)
    warp, inner = out.split(inner, factor=side.extent // side.warps)
    quad, inner = out.split(inner, factor=side.run)
    return _Parts(block, warp, quad, *out.split(inner, factor=side.width))


def _axis(out: Stage, name: str) -> Axis:
    return out.schedule.hand_out(out.name, name)


def _bind_blocks(out: Stage, grid: Sequence[tuple[str, Sequence[Axis]]], together: int = 1) -> dict[str, Axis]:
    """Bind loops to blocks, several to one axis as one loop; returns what is bound by tag.

    Loops of symbolic extents stay apart: the host runs them. Without a tag, loops stay inside of a block.
    """
    left: list[Axis] = []
    made: dict[str, Axis] = {}
    if together > 1:
        *grid, (_, (rows,)), (_, (columns,)) = grid
        made |= bind_together(out, rows, columns, together)
    for tag, axes in grid:
        if not axes or not tag:
            continue
        known = [extent_of(axis.extent) is not None for axis in axes]
        cut = max((k for k, is_known in enumerate(known) if not is_known), default=0)
        left += axes[:cut]
        loop = out.fuse(*axes[cut:]) if len(axes) > cut + 1 else axes[cut]
        out.bind(loop, tag)
        made[tag] = loop
    if left:
        bound = [axis for axis in out.leaf_iter_vars if axis.name not in {x.name for x in left}]
        out.reorder(*left, *bound)
    return made


def compact(stage: Stage, sides: Mapping[int, Side]) -> dict[int, tuple[int, ...]]:
    """Store what a thread holds without what lies between its runs; `sides` by dimension of the stage.

    Returns the dimensions that each old one became.
    """
    rank = len(stage.op.axis)
    apart = {d: side for d, side in sides.items() if side.quads > 1}
    places: dict[int, tuple[int, ...]] = {}
    count = 0
    for d in range(rank):
        places[d] = tuple(range(count, count + (4 if d in apart else 1)))
        count += len(places[d])

    def runs(*index: Expr) -> list[Expr]:
        made: list[Expr] = []
        for d, i in enumerate(index):
            if d not in apart:
                made.append(i)
                continue
            side = apart[d]
            chunk = side.quads * side.run
            made += [i // chunk, i % chunk // side.run, i % side.run // side.width, i % side.width]
        return made

    if apart:
        stage.transform_layout(runs)
    return places


def copied_together(stage: Stage, order: Sequence[Axis], threads: Threads, lanes: int) -> None:
    """Let all threads of a block copy a tile, `lanes` neighbours at a time along the last of `order`."""
    stage.reorder(*order)
    fused = stage.fuse(*order) if len(order) > 1 else order[0]
    if lanes > 1:
        fused, vector = stage.split(fused, factor=lanes)
        stage.vectorize(vector)
    for extent, tag in zip(threads.extents, THREADS, strict=True):
        fused, thread = stage.split(fused, factor=extent)
        stage.bind(thread, tag)
