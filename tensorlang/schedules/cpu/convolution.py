"""Schedules of convolutions: some pixels of a row, times some vectors of output channels, stay in registers.

Weights are read as vectors of output channels, packed first if they are stored otherwise; pixels are read one by one
from the data as it is. At the border the sums are shorter: the loop over the window's columns is copied, so that each
copy has constant bounds. An output whose rows are contiguous is turned around in registers when it is stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod

from tensorlang import dtypes
from tensorlang.errors import InternalError
from tensorlang.ir.expr import Binary, Const, Load, Var, variables
from tensorlang.schedule import Schedule
from tensorlang.schedules.anchor import Anchor, accumulator, axes_of
from tensorlang.schedules.cpu.register_tile import best_part
from tensorlang.schedules.cpu.shares import computed_bits, share_out, worth_threads
from tensorlang.target.spec import Target
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import ComputeOp, loads

_SHORT = 4
"""Short vectors of pixels are loaded whole, several at a time, and multiplied by the lane."""
_PAGE, _WAYS = 4096, 12
"""Lines of the nearest cache that are a page apart share a set, of so many."""
_AHEAD = 1 << 14
"""Bytes of weights that are on their way to the cache, where they do not stay in it."""
_MOST_COPIES = 256
"""Vector stores that the copies of a loop over the window's columns may make."""


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution as its schedule sees it, read off its definition.

    `axes`: of the output, in order. `extents`: of all axes that are numbers. `features`: output channels of a group.
    `cut`: those of `h` and `w` along which padding cuts off parts of the window.
    """

    axes: tuple[str, ...]
    extents: dict[str, int]
    features: int | None
    data: Load
    weight: Load
    cut: frozenset[str]
    bits: int

    @property
    def stored_block(self) -> int | None:
        """Neighbouring output channels that the weights hold side by side, 0 for all; None: they hold none."""
        match self.weight.index[-1]:
            case Var(name="fi"):
                return self.extents["fi"]
            case Binary(op="floormod", a=Var(name="ff"), b=Const(value=size)):
                return int(size)
            case Var(name="ff"):
                return 0
        return None


@dataclass(frozen=True, slots=True)
class Tile:
    """What is kept in registers: rows and columns of pixels, of some blocks of so many output channels."""

    rows: int
    columns: int
    blocks: int
    block: int


def convolution(op: ComputeOp) -> Convolution:
    """Read a convolution off its definition."""
    if op.reduction is None:
        raise InternalError(f"{op.name} is tagged as a convolution, and sums nothing")
    extents = {a.name: int(a.extent.value) for a in (*op.axes, *op.reduce_axes) if isinstance(a.extent, Const)}
    reads = [(load, {name for i in load.index for name in variables(i)}) for load in loads(op)]
    (data,) = (load for load, names in reads if "yy" in names)
    (weight,) = (load for load, names in reads if "yy" not in names)
    features = extents["ff"] * extents.get("fi", 1) // op.attrs["groups"] if "ff" in extents else None
    cut = frozenset(variables(op.reduction.where) if op.reduction.where is not None else ()) & {"yy", "xx"}
    axes = tuple(a.name for a in op.axes)
    return Convolution(axes, extents, features, data, weight, cut, computed_bits(op.dtype))


def schedule_conv2d(s: Schedule, anchor: Anchor) -> None:
    """Keep a tile of pixels and channels in registers over all input channels, for each place of the window."""
    op = s.program[anchor.main]
    assert isinstance(op, ComputeOp)
    conv, target = convolution(op), anchor.target
    tile = tile_of(conv, target)
    block, acc = tile.block, accumulator(s, anchor)
    if conv.stored_block is None or (conv.stored_block == 0 and (conv.features or 0) > 2 * block):
        _pack_weights(s, acc, conv, block, target)
    if conv.axes == ("nn", "ff", "yy", "xx"):
        s[acc].transform_layout(lambda n, o, h, w: (n, o // block, h, w, o % block))
    around = _schedule_output(s, anchor, conv, tile)
    s[acc].compute_at(s[anchor.output], around)
    _schedule_sum(s, acc, conv, tile, target)


def tile_of(conv: Convolution, target: Target) -> Tile:
    """Choose the tile: two vectors of channels, or what blocks and groups leave of that, and pixels to fill registers.

    Columns in parts as equal as can be. Several rows, which use each vector of weights more often, only of images that
    are narrow; where padding makes the rows of a tile unlike, which takes more copies, only for a stream of weights.
    """
    lanes = target.lanes(conv.bits)
    block = _channel_block(conv, 2 * lanes)
    blocks = max(1, min(2 * lanes // block, conv.extents["ff"])) if "fi" in conv.extents and "ff" in conv.extents else 1
    vectors = blocks * -(-block // lanes)
    spare = 1 if target.lanes(32) > _SHORT else _SHORT
    most = max(1, (target.vector_registers - spare) // vectors - 1)
    if _pixels_apart(conv) % _PAGE == 0:
        most = min(most, _WAYS)
    high, wide = conv.extents.get("yy"), conv.extents.get("xx")
    if "xx" in conv.cut:
        most = max(1, min(most, _MOST_COPIES // (blocks * conv.extents["rx"])))
    if wide is None:
        return Tile(1, most, blocks, block)
    columns = best_part(wide, 1, most, vectors)
    if "yy" in conv.cut:
        copies = blocks * conv.extents["rx"] * conv.extents["ry"]
        most = 1 if _rows_first(conv, target) else min(most, _MOST_COPIES // copies)
    if columns < wide or high is None:
        return Tile(1, columns, blocks, block)
    return Tile(best_part(high, columns, max(1, most // columns), vectors), columns, blocks, block)


def _channel_block(conv: Convolution, most: int) -> int:
    """Output channels of a block: as many as may be, unless blocks of weights or groups end before that."""
    whole = gcd(conv.stored_block or 0, conv.features or 0 if _is_grouped(conv) else 0)
    if whole:
        return max(n for n in range(1, most + 1) if whole % n == 0)
    return most if conv.features is None else min(most, conv.features)


def _is_grouped(conv: Convolution) -> bool:
    return conv.features is not None and conv.features != conv.extents["ff"] * conv.extents.get("fi", 1)


def _pixels_apart(conv: Convolution) -> int:
    """Bytes from one pixel of the output to the next, in the data; 1 where they are not known."""
    step, stride = 0, 1
    for index, extent in zip(reversed(conv.data.index), reversed(conv.data.buffer.shape), strict=True):
        if "xx" in variables(index):
            step = stride
        if not isinstance(extent, Const):
            return step or 1
        stride *= int(extent.value)
    return (step or 1) * dtypes.info(conv.data.dtype).bytes


def _pack_weights(s: Schedule, acc: str, conv: Convolution, block: int, target: Target) -> None:
    """Copy the weights into blocks of output channels, [o / block, y, x, c, block]."""
    places = {next(iter(variables(index)), ""): k for k, index in enumerate(conv.weight.index)}
    if not {"ff", "ry", "rx", "rc"} <= set(places) or len(places) != len(conv.weight.index):
        return  # blocks of another kind: read as they are
    o, y, x, c = (places[name] for name in ("ff", "ry", "rx", "rc"))
    packed = s[s.cache_read(conv.weight.buffer.name, "global", [acc])]
    p0, p1, p2, p3, p4 = packed.transform_layout(lambda *at: (at[o] // block, at[y], at[x], at[c], at[o] % block))
    if o != len(places) - 1:  # rows along x, or along c, are contiguous, and turned around in registers
        single = conv.extents["rx"] == 1
        packed.reorder(p0, p1, p2 if single else p3, p4, p3 if single else p2)
    packed.vectorize(p4)
    if worth_threads({n: e for n, e in conv.extents.items() if n in places}, target):
        share_out(s, packed.name, [p0.name], target)


def _schedule_output(s: Schedule, anchor: Anchor, conv: Convolution, tile: Tile) -> str:
    """Tile the output, and return the loop around a tile. Rows are shared out among threads."""
    out = s[anchor.output]
    axis = dict(zip(conv.axes, axes_of(s, anchor.output), strict=True))

    def split(name: str, factor: int) -> tuple[str, str]:
        outer, inner = out.split(name, factor=factor, tail="peel")
        return outer.name, inner.name

    rows, row = split(axis["yy"], tile.rows)
    columns, column = split(axis["xx"], tile.columns)
    if "fi" in axis:
        around, block = split(axis["ff"], tile.blocks)
        parts, lanes = split(axis["fi"], tile.block)
        blocks, together = [around, parts], [block]
    else:
        around, lanes = split(axis["ff"], tile.block)
        blocks, together = [around], []
    order = [axis["nn"], rows, *blocks] if _rows_first(conv, anchor.target) else [axis["nn"], *blocks, rows]
    out.reorder(*order, columns, *together, row, column, lanes)
    if conv.axes[-1] == "xx":
        copied, vector = [row], column
    else:
        copied, vector = [*together, row, column], lanes
    for name in copied:
        out.unroll(name)
    out.vectorize(vector)
    if worth_threads(conv.extents, anchor.target):
        share_out(s, anchor.output, order, anchor.target)
    return columns


def _schedule_sum(s: Schedule, acc: str, conv: Convolution, tile: Tile, target: Target) -> None:
    """One place of the window after the other, all input channels for each, or those of a block."""
    stage = s[acc]
    *outer, row, column, lanes = axes_of(s, acc)
    *channels, y, x = (a.name for a in stage.op.reduce_axis)
    around, blocks = [outer[0]], outer[1:]
    # Blocks inside pixels: a pixel in a register serves all blocks before the next takes its place.
    stage.reorder(*around, *channels[:-1], y, x, channels[-1], row, column, *blocks, lanes)
    if tile.rows > 1 and "yy" in conv.cut:
        stage.unroll(y)
    if "xx" in conv.cut:
        stage.unroll(x)
    for name in (row, column, *blocks):
        stage.unroll(name)
    stage.vectorize(lanes)
    if not _rows_first(conv, target):
        step = (extent_of(stage.op.axis[-1].extent) or 1) * dtypes.info(conv.weight.dtype).bytes
        read = {load.buffer.name for load in loads(stage.schedule.state.compute_op(stage.name))}
        (weight,) = read - {conv.data.buffer.name}
        stage.prefetch(weight, channels[-1], max(1, _AHEAD // step))


def _rows_first(conv: Convolution, target: Target) -> bool:
    """Whether all weights stay in cache, so that the data need come by only once."""
    weights = prod(n for name, n in conv.extents.items() if name in ("ff", "fi", "rc", "ri", "ry", "rx"))
    return weights * dtypes.info(conv.weight.dtype).bytes <= target.caches[1] // 2
