"""Depthwise convolutions on a GPU: threads over the pixels of a channel, or over channels where these lie together.

With pixels in rows, a block takes a rectangle of one channel of one image and keeps what it looks at in shared memory.
With channels last, neighbouring threads take neighbouring channels of some pixels, 16 bytes each where they can, and
read global memory in rows.
"""

from __future__ import annotations

from tensorlang import dtypes
from tensorlang.ir.expr import Var, same, variables
from tensorlang.schedule import Schedule
from tensorlang.schedules.anchor import Anchor, accumulator, axes_of, compute_op
from tensorlang.schedules.gpu.block_tile import Threads, compact, tiled
from tensorlang.schedules.gpu.blocks import ACCESS_BITS
from tensorlang.schedules.gpu.product_plan import MANY, Side
from tensorlang.schedules.room import Room
from tensorlang.schedules.windows import WindowSum, convolution

_ROW = 32
"""Threads along a row of pixels, or of channels, at most."""
_THREADS = 128
_EACH = 4
"""Pixels of a thread, at most."""
_WRITTEN_OUT = 25
"""Places of a window that are written out side by side."""


def schedule_depthwise(room: Room, anchor: Anchor) -> None:
    """Schedule a depthwise convolution and what follows it."""
    s = room.s
    conv, names = convolution(compute_op(s, anchor.main)), axes_of(s, anchor.main)
    high, wide, channels = (conv.extents.get(name, MANY) for name in (conv.y, conv.x, conv.outputs[-1]))
    in_rows = names[-1] == conv.x
    width = 1 if in_rows else _together(conv)
    sides = _rectangle(conv, high, wide) if in_rows else _columns(conv, wide, channels, width)
    local, out = accumulator(s, anchor), s[anchor.output]
    pixels = str(s.name_of(s.cache_read(conv.data.buffer.name, "shared", [local]))) if in_rows else None
    reads = (conv.data, conv.weight) if width > 1 else ()
    vectors = [str(s.name_of(s.cache_read(read.buffer.name, "local", [local]))) for read in reads]
    own = dict(zip(names, axes_of(s, anchor.output), strict=True))
    where = compact(s[local], {names.index(name): side for name, side in sides.items()})
    rows = [("blockIdx.x", [*conv.batch, *conv.outputs]), ("blockIdx.z", [conv.y]), ("blockIdx.y", [conv.x])]
    apart = [("blockIdx.x", [*conv.batch, conv.y]), ("blockIdx.y", [conv.x]), ("blockIdx.z", [*conv.outputs])]
    grid = rows if in_rows else apart
    threads = tiled(
        out, {own[n]: side for n, side in sides.items()}, [(tag, [own[n] for n in loops]) for tag, loops in grid]
    )
    s[local].compute_at(out, threads.loop)
    kept = [axis for name in sides for axis in (s[local].op.axis[d] for d in where[names.index(name)])]
    s[local].reorder(*s[local].op.reduce_axis, *kept)
    windows = list(s[local].op.reduce_axis) if conv.extent(conv.down, conv.right) <= _WRITTEN_OUT else []
    for axis in (*windows, *kept):
        s[local].unroll(axis)
    for vector, at, read in zip(vectors, (kept[0], conv.right), reads, strict=False):
        s[vector].compute_at(s[local], at)
        (channel,) = (d for d, index in enumerate(read.index) if conv.outputs[-1] in variables(index))
        s[vector].vectorize(s[vector].op.axis[channel])
    if pixels is not None:
        s[pixels].compute_at(out, threads.blocks["blockIdx.y"])
        _filled(s, pixels, threads)


def _rectangle(conv: WindowSum, high: int, wide: int) -> dict[str, Side]:
    """Rows and columns of pixels of a block: whole rows if they are short, and neighbouring threads side by side."""
    lanes = next((n for n in (8, 14, 16, 28, _ROW) if n >= wide), _ROW)
    columns = Side(1, min(2, -(-wide // lanes)), lanes, 1)
    down = max(1, min(_THREADS // lanes, high))
    return {conv.y: Side(1, max(1, min(_EACH // columns.quads, high // down)), down, 1), conv.x: columns}


def _columns(conv: WindowSum, wide: int, channels: int, width: int) -> dict[str, Side]:
    """Columns of pixels and channels of a block: neighbouring threads have neighbouring channels, `width` each.

    A thread of vectors has neighbouring pixels, whose windows overlap in its registers.
    """
    count = channels // width
    if width == 1:
        lanes = next((n for n in (1, 2, 4, 8, 16, _ROW) if n >= count), _ROW)
        across = max(1, min(_THREADS // lanes, wide))
        threads = Side(1, max(1, min(_EACH, wide // across)), across, 1), Side(1, 1, lanes, 1)
        return dict(zip((conv.x, conv.outputs[-1]), threads, strict=True))
    lanes = max(n for n in range(1, _ROW + 1) if count % n == 0)
    each = min(_EACH, wide)
    blocks = -(-wide // (each * max(1, _THREADS // lanes)))
    return {conv.x: Side(1, 1, -(-wide // (each * blocks)), each), conv.outputs[-1]: Side(1, 1, lanes, width)}


def _together(conv: WindowSum) -> int:
    """The channels of 16 bytes, where each output channel has data of its own; else 1."""
    reads, channel = (conv.data, conv.weight), conv.outputs[-1]
    width = ACCESS_BITS // max(dtypes.info(read.dtype).bits for read in reads)
    own = all(any(same(index, Var(channel, index.dtype)) for index in read.index) for read in reads)
    channels = conv.extents.get(channel)
    return width if own and channels is not None and channels % width == 0 else 1


def _filled(s: Schedule, pixels: str, threads: Threads) -> None:
    """Let the threads copy rows of pixels, neighbouring ones side by side."""
    stage = s[pixels]
    *outer, row, column = stage.op.axis
    down, y = stage.split(row, factor=threads.extents[1])
    right, x = stage.split(column, factor=threads.extents[0])
    stage.reorder(*outer, down, right, y, x)
    stage.bind(y, "threadIdx.y")
    stage.bind(x, "threadIdx.x")
