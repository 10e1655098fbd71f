"""Convolutions on tensor cores: the implicit product of windows of pixels with weights.

The windows of a block's pixels lie in shared memory as rows of a matrix, some terms at a time, copied there from the
image by 16 bytes with zeros for padding. All else is as for other products. Pixels of all images are counted through,
so that small images fill tiles as well as large ones.
"""

from __future__ import annotations

from tensorlang import dtypes
from tensorlang.ir.expr import variables
from tensorlang.schedule import Schedule
from tensorlang.schedule.rewrites.windows_product import windows_of
from tensorlang.schedules.anchor import Anchor, axes_of, compute_op
from tensorlang.schedules.gpu.points import schedule_points
from tensorlang.schedules.gpu.product import schedule_product
from tensorlang.schedules.gpu.tensor_cores import WarpTile, fragment_tile, multiplies, schedule_fragments
from tensorlang.schedules.room import Room
from tensorlang.target.spec import Target
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import loads

_ACCESS, _STEP = 16, 32
"""Bytes of neighbouring channels that are copied at once, and of terms that one instruction multiplies."""
_FEWEST = 16
"""Output channels of a group, with fewer of which most of a tile would be computed for nothing."""
_TOGETHER = 8
"""Output channels that fragments of sums have side by side: lanes would hold other ones behind a group with a rest."""
_ROWS, _TERMS = ("nn", "yy", "xx"), ("ry", "rx", "rc")


def prepare_convolution(s: Schedule, name: str, target: Target) -> None:
    """Make a convolution a product, where tensor cores of a target take it.

    They take data and weights of one dtype, with sums of 32 bits, whose channels lie side by side: input channels of a
    group in multiples of 16 bytes, those of a window of 32 bytes; output channels in multiples of 16 bytes where it is
    these that lie side by side in the weights, which they must not for bytes. Several groups have a multiple of 8
    output channels each.
    """
    op = compute_op(s, name)
    axes = [axis.name for axis in op.axes], [axis.name for axis in op.reduce_axes]
    if not target.can.device or list(map(sorted, axes)) != [sorted((*_ROWS, "ff")), sorted(_TERMS)]:
        return
    w = windows_of(s.operation(name), _ROWS, _TERMS, op.attrs.get("groups", 1))
    if isinstance(w, str) or not multiplies(target, w.data.dtype, w.weight.dtype, op.dtype):
        return
    size, channels = dtypes.info(w.data.dtype).bytes, extent_of(w.terms[-1].extent) or 0
    side_by_side = "rc" in variables(w.data.index[-1]) and (w.by_features or "rc" in variables(w.weight.index[-1]))
    fits = channels * size % _ACCESS == 0 and w.depth * size % _STEP == 0 and w.features >= _FEWEST
    packed = w.by_features and (size == 1 or w.features * size % _ACCESS)
    cut = w.groups > 1 and w.features % _TOGETHER
    if side_by_side and fits and not packed and not cut:
        s[name].windows_product(_ROWS, _TERMS, w.groups)


def product_before(s: Schedule, output: str) -> str:
    """The stage of the product that a stage tagged `CONV2D_PRODUCT` takes its pixels from."""
    (read,) = loads(compute_op(s, output))
    return s.program.producer[read.buffer.name]


def schedule_conv2d_product(room: Room, anchor: Anchor) -> None:
    """Schedule a convolution that was made a product, and what follows it.

    Without tensor cores, or where the windows do not suit them, they are laid out in global memory first.
    """
    s, main = room.s, product_before(room.s, anchor.main)
    in_groups_of_channels = len(axes_of(s, main)) > 2  # whose ends tiles of warp groups would have to be cut at
    tile = fragment_tile(s, Anchor(main, main, anchor.target), by_warps=in_groups_of_channels)
    if tile is None:
        schedule_product(room, Anchor(main, main, anchor.target))
        schedule_points(s, anchor)
        return
    schedule_windows(s, anchor, tile)


def schedule_windows(s: Schedule, anchor: Anchor, tile: WarpTile) -> None:
    """Schedule a convolution that was made a product, and what follows it, by a tile for tensor cores."""
    main = product_before(s, anchor.main)
    own = dict(zip(axes_of(s, anchor.main), axes_of(s, anchor.output), strict=True))
    if anchor.main != anchor.output:
        s[anchor.main].compute_inline()
    axes = _matrix(s, anchor.output, own, main) if tile.parts == 1 else ()
    schedule_fragments(s, Anchor(main, anchor.output, anchor.target), tile, axes, in_place=True)


def _matrix(s: Schedule, output: str, own: dict[str, str], main: str) -> list[str]:
    """Make the loops of an output those of the product before it: groups, pixels, output channels."""
    stage = s[output]
    *groups, _, features = compute_op(s, main).axes
    channels = [own["ff"]]
    if groups:
        channels = [axis.name for axis in stage.split(own["ff"], factor=extent_of(features.extent))]
    spatial = [own[name] for name in ("nn", "yy", "xx")]
    stage.reorder(*channels[:-1], *spatial, channels[-1])
    return [*channels[:-1], stage.fuse(*spatial).name, channels[-1]]
