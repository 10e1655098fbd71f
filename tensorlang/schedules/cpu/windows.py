"""Schedules of windows that slide over each channel by itself, or over few: depthwise, narrow groups, pooling.

Where rows are contiguous, a tile is some rows of one vector of columns. What padding cuts off a row is a condition of
the lanes (`Sliding.element`), so that vectors keep their places; what it cuts off above and below shortens the loops.
Where channels are contiguous, a tile is some pixels of a vector of channels, and the loops are shorter on all sides.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang.ir.expr import Const
from tensorlang.schedule import Schedule
from tensorlang.schedules.anchor import Anchor, accumulator, axes_of
from tensorlang.schedules.cpu.shares import computed_bits, share_out, worth_threads
from tensorlang.te.operation import ComputeOp, Operation

_CHAINS = 4
"""Independent results of a tile: more would leave no registers for the weights."""
_PIXELS = 6
_MOST_COPIES = 256
"""Vector stores that the copies of a tile may make."""


def schedule_sliding(s: Schedule, anchor: Anchor) -> None:
    """Keep a tile of pixels in registers over the whole window."""
    op = s.program[anchor.main]
    assert isinstance(op, ComputeOp)
    extents = {a.name: int(a.extent.value) for a in (*op.axes, *op.reduce_axes) if isinstance(a.extent, Const)}
    names = [a.name for a in op.axes]
    axis = dict(zip(names, axes_of(s, anchor.output), strict=True))
    lanes = anchor.target.lanes(computed_bits(op.dtype))
    acc = accumulator(s, anchor)
    if names[-1] == "xx":
        around = _tile_rows(s, anchor, axis, extents, lanes)
    else:
        around = _tile_pixels(s, anchor, axis, extents, lanes)
    s[acc].compute_at(s[anchor.output], around)
    _schedule_window(s, acc, names, extents)


def _tile_rows(s: Schedule, anchor: Anchor, axis: dict[str, str], extents: dict[str, int], lanes: int) -> str:
    """Some rows (and channels that read the same data) of one vector of columns; the loop around a tile."""
    out = s[anchor.output]
    together = _together(s.program[anchor.main])
    channels, channel = (str(a) for a in out.split(axis["ff"], factor=together, tail="peel"))
    rows, row = (str(a) for a in out.split(axis["yy"], factor=_CHAINS // together, tail="peel"))
    columns, column = (str(a) for a in out.split(axis["xx"], factor=min(lanes, extents.get("xx", lanes)), tail="peel"))
    out.reorder(axis["nn"], channels, rows, columns, channel, row, column)
    if _copies(extents) * -(-extents.get("xx", 1 << 20) // lanes) <= _MOST_COPIES:
        out.unroll(columns)  # the conditions of lanes are constant in a copy
    out.unroll(channel)
    out.unroll(row)
    out.vectorize(column)
    if worth_threads(extents, anchor.target):
        share_out(s, anchor.output, [axis["nn"], channels, rows], anchor.target)
    return columns


def _tile_pixels(s: Schedule, anchor: Anchor, axis: dict[str, str], extents: dict[str, int], lanes: int) -> str:
    """Some pixels of one vector of channels; the loop around a tile."""
    out = s[anchor.output]
    inner = axis.get("fi", axis["ff"])
    blocks, lane = (str(a) for a in out.split(inner, factor=lanes, tail="peel"))
    columns, pixel = (
        str(a) for a in out.split(axis["xx"], factor=min(_PIXELS, extents.get("xx", _PIXELS)), tail="peel")
    )
    outside = [axis["nn"], axis["ff"], axis["yy"]] if "fi" in axis else [axis["nn"], axis["yy"]]
    out.reorder(*outside, blocks, columns, pixel, lane)
    out.unroll(pixel)
    out.vectorize(lane)
    if worth_threads(extents, anchor.target):
        share_out(s, anchor.output, outside, anchor.target)
    return columns


def _schedule_window(s: Schedule, acc: str, names: Sequence[str], extents: dict[str, int]) -> None:
    stage = s[acc]
    *channels, y, x = (a.name for a in stage.op.reduce_axis)
    inner = names[-1:] if names[-1] != "xx" else []
    tile = ["ff", "yy", "xx"] if not inner else ["xx", *inner]
    stage.reorder(*[n for n in names if n not in tile], *channels, y, x, *tile)
    if _copies(extents) <= _MOST_COPIES:
        stage.unroll(x)
    if not inner:
        stage.unroll(y)
    for name in tile[:-1]:
        stage.unroll(name)
    stage.vectorize(tile[-1])


def _copies(extents: dict[str, int]) -> int:
    """The vector operations of a tile."""
    return extents["ry"] * extents["rx"] * _CHAINS


def _together(op: Operation) -> int:
    """Output channels of a tile, of those that read the same data."""
    sharing = int(op.attrs.get("sharing", 1)) if isinstance(op, ComputeOp) else 1
    return max(n for n in range(1, _CHAINS + 1) if sharing % n == 0)
