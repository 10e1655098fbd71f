"""Convolutions on tensor cores: the implicit product of windows of pixels with weights.

The windows of a block's pixels lie in shared memory as rows of a matrix, some terms at a time, copied there from the
image by 16 bytes with zeros for padding. All else is as for other products. Pixels of all images are counted through,
so that small images fill tiles as well as large ones.
"""

from __future__ import annotations

from tensorlang.schedule import Schedule
from tensorlang.schedules.anchor import Anchor, axes_of, compute_op
from tensorlang.schedules.cpu.convolution_product import product_before
from tensorlang.schedules.gpu.points import schedule_points
from tensorlang.schedules.gpu.product import schedule_product
from tensorlang.schedules.gpu.tensor_cores import WarpTile, fragment_tile, schedule_fragments
from tensorlang.te.axis import extent_of


def schedule_conv2d_product(s: Schedule, anchor: Anchor) -> None:
    """Schedule a convolution that was declared as a product, and what follows it.

    Without tensor cores, or where the windows do not suit them, they are laid out in global memory first.
    """
    main = product_before(s, anchor.main)
    in_groups_of_channels = len(axes_of(s, main)) > 2  # whose ends tiles of warp groups would have to be cut at
    tile = fragment_tile(s, Anchor(main, main, anchor.target), by_warps=in_groups_of_channels)
    if tile is None:
        schedule_product(s, Anchor(main, main, anchor.target))
        schedule_points(s, anchor)
        return
    schedule_windows(s, anchor, tile)


def schedule_windows(s: Schedule, anchor: Anchor, tile: WarpTile) -> None:
    """Schedule a convolution that was declared as a product, and what follows it, by a tile for tensor cores."""
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
