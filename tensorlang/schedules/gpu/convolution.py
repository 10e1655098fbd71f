"""Convolutions on a GPU: a tile of the image and the weights of some channels in shared memory, sums in registers.

A block computes some output channels of a rectangle of pixels. It is the implicit form of the product of weights with
the windows: no window is laid out in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import gcd, prod

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Const, as_expr, substitute, variables
from tensorlang.ir.simplify import simplify
from tensorlang.schedule import Schedule
from tensorlang.schedule.stage import Stage
from tensorlang.schedules.anchor import Anchor, accumulator, axes_of, compute_op
from tensorlang.schedules.gpu.block_tile import compact, copied_together, tiled
from tensorlang.schedules.gpu.blocks import WARP
from tensorlang.schedules.gpu.product_plan import (
    FETCH_COST,
    LEAST_COPY,
    MANY,
    READ_COST,
    Side,
    cores_of,
    lanes_of_copy,
    stages_of,
)
from tensorlang.schedules.room import Room
from tensorlang.schedules.windows import WindowSum, convolution
from tensorlang.target.spec import Target
from tensorlang.te.axis import Axis, extent_of

_MOST_THREADS, _FEWEST_THREADS = 256, 64
_MOST_HELD = 64
"""Sums of one thread."""
_UNEVEN = 1.2
"""What tests at the ends of tiles cost, and computing beyond them."""
_PAD = 4
"""Elements between rows of weights that were turned around, so that not all threads store to the same bank."""
_SHARED = 32768
"""Bytes of shared memory of a block, with which at least two blocks are on a multiprocessor at once."""
_MOST_CHANNELS = 16
"""Input channels that are in shared memory together."""
_WRITTEN_OUT = 256
"""Sums that are written out one after the other, at the places of a window: more take long to compile."""


@dataclass(frozen=True, slots=True)
class ConvolutionTile:
    """The tile of a block: channels, rows and columns of pixels, and input channels of a step."""

    channels: Side
    rows: Side
    columns: Side
    depth: int
    stages: int

    def sides(self, conv: WindowSum) -> dict[str, Side]:
        """The sides by axes of the output, in their order."""
        found = {conv.outputs[-1]: self.channels, conv.y: self.rows, conv.x: self.columns}
        return {name: found[name] for name in conv.axes if name in found}

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return prod(side.warps * side.lanes for side in (self.channels, self.rows, self.columns))

    @property
    def held(self) -> int:
        """Sums of one thread."""
        return prod(side.each for side in (self.channels, self.rows, self.columns))


@dataclass(frozen=True, slots=True)
class Windows:
    """What a convolution does along its window, in numbers: kernel, stride, reach and padding by rows and columns."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    reach: tuple[int, int]
    before: tuple[int, int]

    def pixels(self, rows: int, columns: int) -> int:
        """The pixels of data that so many rows and columns of output look at."""
        high, wide = ((n - 1) * s + r for n, s, r in zip((rows, columns), self.stride, self.reach, strict=True))
        return high * wide


def schedule_conv2d(room: Room, anchor: Anchor) -> None:
    """Schedule a convolution and what follows it."""
    s = room.s
    conv = convolution(compute_op(s, anchor.main))
    tile = tile_of(conv, anchor.target)
    local, out = accumulator(s, anchor), s[anchor.output]
    names = dict(zip(conv.axes, axes_of(s, anchor.output), strict=True))
    pixels = str(s.name_of(s.cache_read(conv.data.buffer.name, "shared", [local])))
    weights = str(s.name_of(s.cache_read(conv.weight.buffer.name, "shared", [local])))
    _pad_weights(s, weights, conv, tile.channels.extent)
    _pad_pixels(s, local, pixels, conv, tile)
    orders = _channels_first(s, pixels, conv), _features_last(s, weights, conv)
    fragment = s.cache_read(weights, "local", [local])
    compact(s[fragment], {len(s[fragment].op.axis) - 1: tile.channels})
    sides = tile.sides(conv)
    where = compact(s[local], {conv.axes.index(name): side for name, side in sides.items()})
    kinds = (("blockIdx.z", (*conv.batch, conv.y)), ("blockIdx.y", conv.outputs), ("blockIdx.x", (conv.x,)))
    grid = [(tag, [names[name] for name in axes]) for tag, axes in kinds]
    threads = tiled(out, {names[name]: side for name, side in sides.items()}, grid)
    s[local].compute_at(out, threads.loop)
    step, term = _summed(s[local], conv, [where[conv.axes.index(name)] for name in sides], tile)
    s[fragment].compute_at(s[local], term)
    s[fragment].vectorize(s[fragment].op.axis[-1])
    for copy, order in zip((pixels, weights), orders, strict=True):
        s[copy].compute_at(s[local], step)
        *_, row, _ = s[copy].op.axis
        moved = order[-1] != len(order) - 1
        if copy == weights and moved:
            s[copy].storage_align(row, tile.channels.extent, _PAD)
        bits, source = dtypes.info(s.program.buffers[copy].dtype).bits, conv.weight.buffer
        lanes = 1
        if copy == weights and not moved:
            count = tile.channels.extent * tile.depth * prod(windows_of(conv).kernel)
            lanes = lanes_of_copy(count, threads.count, bits, extent_of(source.shape[-1]))
        copied_together(s[copy], [s[copy].op.axis[d] for d in order], threads, lanes)
        stages = min(tile.stages, extent_of(step.extent) or tile.stages)
        if stages > 1:
            s[copy].pipeline(stages)


def _pad_pixels(s: Schedule, local: str, pixels: str, conv: WindowSum, tile: ConvolutionTile) -> None:
    """Let tiles reach beyond the last pixel, where data are zeros or left out."""
    windows = windows_of(conv)
    for k, (name, side) in enumerate(((conv.y, tile.rows), (conv.x, tile.columns))):
        count = conv.extents.get(name)
        (place,) = (d for d, e in enumerate(conv.data.index) if name in variables(e))
        extent = extent_of(conv.data.buffer.shape[place])
        if count is None or extent is None or count % side.extent == 0:
            continue
        last = (-(-count // side.extent) * side.extent - 1) * windows.stride[k] + windows.reach[k] - windows.before[k]
        if last > extent:
            s[pixels].pad(s[pixels].op.axis[place], last)
        s[local].pad(name, side.extent)


def _pad_weights(s: Schedule, weights: str, conv: WindowSum, extent: int) -> None:
    """Let weights be zeros after the last channel, up to the end of its tile."""
    own = [d for d, e in enumerate(conv.weight.index) if conv.outputs[-1] in variables(e)]
    if len(conv.outputs) == 1:
        inside = prod(extent_of(conv.weight.buffer.shape[d]) or 1 for d in own[1:])
        s[weights].pad(s[weights].op.axis[own[0]], extent // gcd(extent, inside))


def _channels_first(s: Schedule, pixels: str, conv: WindowSum) -> list[int]:
    """Keep pixels of one channel together; returns the dimensions of the copy in the order of the data."""
    index = conv.data.index
    spatial = [d for d, e in enumerate(index) if {conv.y, conv.x} & set(variables(e))]
    order = [*(d for d in range(len(index)) if d not in spatial), *spatial]
    if order != sorted(order):
        s[pixels].transform_layout(lambda *at: [at[d] for d in order])
    return [order.index(d) for d in range(len(index))]


def _features_last(s: Schedule, weights: str, conv: WindowSum) -> list[int]:
    """Keep weights of neighbouring output channels together; returns the dimensions in the order of the weights."""
    index = conv.weight.index
    own = [d for d, e in enumerate(index) if conv.outputs[-1] in variables(e)]
    rest = [d for d in range(len(index)) if d not in own]
    last = len(rest)
    if own != [own[0]] or own == [last]:  # blocks of channels have their innermost in place
        return list(range(len(index)))
    s[weights].transform_layout(lambda *at: [at[d] for d in (*rest, *own)])
    return [last if d in own else rest.index(d) for d in range(len(index))]


def _summed(stage: Stage, conv: WindowSum, held: Sequence[tuple[int, ...]], tile: ConvolutionTile) -> tuple[Axis, Axis]:
    """Sum a tile in registers; returns the loops over steps of input channels, and over the terms of a step."""
    axes = list(stage.op.axis)
    *others, last = conv.inputs
    step, channel = stage.split(last, factor=tile.depth)
    kept = [d for dims in held for d in dims]
    rest = [axis for d, axis in enumerate(axes) if d not in kept]
    y, x = (next(axis for axis in stage.op.reduce_axis if axis.name == name) for name in (conv.down, conv.right))
    stage.reorder(*rest, *others, step, channel, y, x, *(axes[d] for d in kept))
    high, wide = conv.extents[conv.down], conv.extents[conv.right]
    if wide * tile.held <= _WRITTEN_OUT:
        stage.unroll(x)
        if high * wide * tile.held <= _WRITTEN_OUT:
            stage.unroll(y)
    for d in kept:
        stage.unroll(axes[d])
    return step, x


def windows_of(conv: WindowSum) -> Windows:
    """Read strides and dilations off the places of the data that are read."""
    found = []
    for out, window in ((conv.y, conv.down), (conv.x, conv.right)):
        index = next(e for e in conv.data.index if out in variables(e))
        zero = dict.fromkeys(variables(index), as_expr(0))
        start, *ends = (
            simplify(substitute(index, {**zero, **dict.fromkeys(names, as_expr(1))}))
            for names in ((), (out,), (window,))
        )
        first, stride, dilation = (int(e.value) if isinstance(e, Const) else 0 for e in (start, *ends))
        size = conv.extents[window]
        found.append((size, stride - first, (size - 1) * (dilation - first) + 1, -first))
    down, right = found
    return Windows(*zip(down, right, strict=True))


def tile_of(conv: WindowSum, target: Target) -> ConvolutionTile:
    """The tile that is done first: see `product_tile`. Its data and weights fit into shared memory."""
    windows, cores = windows_of(conv), cores_of(target)
    *blocks_of_channels, feature = conv.outputs
    features = (conv.extents.get(feature) if blocks_of_channels else conv.features) or MANY
    high, wide = conv.extents.get(conv.y, MANY), conv.extents.get(conv.x, MANY)
    count = conv.extent(*conv.batch) * (conv.extent(*blocks_of_channels) if blocks_of_channels else _groups(conv))
    data, weight = (dtypes.info(load.dtype).bytes for load in (conv.data, conv.weight))
    most = min(_SHARED, target.gpu.shared_bytes if target.gpu else _SHARED)
    terms = conv.extents.get(conv.inputs[-1], _MOST_CHANNELS)
    stages = stages_of(target) if min(data, weight) * 8 >= LEAST_COPY else 1

    def cost(tile: ConvolutionTile) -> tuple[float, int]:
        sides = (tile.channels, tile.rows, tile.columns)
        blocks = count * prod(-(-n // side.extent) for n, side in zip((features, high, wide), sides, strict=True))
        area = prod(side.extent for side in sides)
        pixels = tile.rows.each * tile.columns.each
        reads = READ_COST * (tile.channels.each + pixels) / tile.held
        brought = tile.channels.extent + windows.pixels(tile.rows.extent, tile.columns.extent) / prod(windows.kernel)
        uneven = any(n % side.extent for n, side in zip((features, high, wide), sides, strict=True))
        idle = (_UNEVEN if uneven else 1.0) * -(-tile.threads // WARP) * WARP / tile.threads
        return -(-blocks // cores) * area * (1 + reads + FETCH_COST * brought / area) * idle, area

    def filled(sides: tuple[Side, Side, Side]) -> ConvolutionTile:
        channel = (
            windows.pixels(sides[1].extent, sides[2].extent) * data + prod(windows.kernel) * sides[0].extent * weight
        )
        depth = max(1, min(_MOST_CHANNELS, terms, most // (channel * stages)))
        whole = [d for d in range(1, depth + 1) if terms % d == 0 and 2 * d > depth]
        return ConvolutionTile(*sides, max(whole, default=depth), stages)

    return min((tile for sides in _candidates(features) if _fits(tile := filled(sides))), key=cost)


def _fits(tile: ConvolutionTile) -> bool:
    return tile.held <= _MOST_HELD and _FEWEST_THREADS <= tile.threads <= _MOST_THREADS


def _groups(conv: WindowSum) -> int:
    return conv.extents[conv.outputs[-1]] // conv.features if conv.features else 1


def _candidates(features: int) -> Iterator[tuple[Side, Side, Side]]:
    """Tiles of channels, rows and columns."""
    width = max(w for w in (1, 2, 4) if w <= features)
    for quads, lanes in product((1, 2), (1, 2, 4, 8, 16)):
        channels = Side(1, quads, lanes, width)
        if channels.extent > max(features, width):
            continue
        for (rows, high), (columns, wide) in product(
            product((1, 2, 4, 7, 8, 14), (1, 2)), product((4, 7, 8, 14, 16, 28, 32), (1, 2, 4))
        ):
            yield channels, Side(1, high, rows, 1), Side(1, wide, columns, 1)
