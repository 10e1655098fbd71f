"""Tiles of products on tensor cores: what a block and a warp compute, in which steps, in how many parts and what order.

A model of the time chooses among a few shapes. Its unit is a sum that a multiprocessor updates by 32 bytes of terms, of
which an A100 updates 64 in a cycle. Nothing here was measured on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.schedule import Decision
from tensorlang.schedules.gpu.blocks import WARP, limits
from tensorlang.schedules.gpu.product_plan import MANY, PARTS, adding_cost, cores_of, rows_together
from tensorlang.target.spec import Target

GROUP = 128
"""Threads of a warp group."""
ROWS, COLUMNS, DEPTH_BYTES = 16, 8, 32
"""The tile of one mma.sync: rows and columns of sums, and bytes of terms of a factor."""
GROUP_AHEAD = 2
"""Steps that warp groups copy ahead where how many are there at once is open."""
GROUP_ROWS, GROUP_BYTES = 64, 128
"""Rows of sums of a wgmma, and the bytes of terms that one row of its factors has."""
_READ_COST = 16
"""What bringing a row or column of fragments to registers costs, in sums that are updated: ldmatrix moves 128 bytes
a cycle, in which an A100 updates 64 sums by as many bytes of terms."""
_FETCH_COST = 43
"""What bringing a row or column of a tile to shared memory costs, in sums: 47 bytes come from L2 each cycle."""
_GROUP_RATE = 0.6
"""The time of a sum in a warp group, in that of one in warps: mma.sync reaches about 60 % of a Hopper's rate."""
_ROW_BYTES = (128, 64, 32)
"""Bytes of terms of a step, the most wanted first for small tiles."""
_STAGES, _FEWEST_STAGES = 4, 3
_MOST_SHARED = 65536
"""Bytes of shared memory of a block, with which two blocks are on a multiprocessor of most GPUs."""
GROUP_SPARE = 1024 + 64
"""Bytes that the factors of a warp group may lie further on, to begin at 1024, and of the barriers of their copies."""
_LEAST_PART = 512
"""Bytes of the terms of a part, at least: fewer are over before the copies ahead have begun to pay."""


@dataclass(frozen=True, slots=True)
class WarpTile:
    """The tile of a warp as (rows, columns), how many warps a block has along both, the terms of a step, and the steps
    that are there at once.

    `lanes`: threads that multiply together, those of a warp or of a warp group. `parts`: in how many parts the terms
    are summed, by other blocks each. `together`: rows of blocks that run side by side, column by column.
    Numbers may be decisions, all but `lanes` and `parts`.
    """

    warp: tuple[int, int]
    warps: tuple[int, int]
    lanes: int = WARP
    depth: int = 0
    stages: int = 0
    parts: int = 1
    together: int = 1

    @property
    def block(self) -> tuple[int, int]:
        """Rows and columns of a block."""
        return self.warp[0] * self.warps[0], self.warp[1] * self.warps[1]

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.warps[0] * self.warps[1] * self.lanes

    @property
    def ahead(self) -> int | None:
        """How many steps ahead warp groups copy: so that the products of a step go on while the next one begins."""
        if self.lanes == WARP or isinstance(self.stages, Decision):
            return None if self.lanes == WARP else GROUP_AHEAD
        return self.stages - 2 if self.stages > 2 else None


@dataclass(frozen=True, slots=True)
class Extents:
    """What is known of the sizes of a product: None where it is not; `length`: bytes of the terms of a row."""

    m: int | None
    n: int | None
    batches: int | None
    length: int
    itemsize: int


_TILES = (
    WarpTile((64, 32), (2, 4)),
    WarpTile((32, 32), (4, 2)),
    WarpTile((32, 32), (2, 4)),
    WarpTile((32, 32), (2, 2)),
    WarpTile((16, 32), (2, 2)),
    WarpTile((32, 16), (2, 2)),
    WarpTile((16, 16), (2, 2)),
    WarpTile((16, 16), (1, 2)),
)
"""At most 64 sums of a thread: they, the fragments and the addresses fit 128 registers."""
_GROUP_TILES = tuple(
    WarpTile((GROUP_ROWS, columns), (groups, 1), GROUP) for groups, columns in ((2, 256), (2, 128), (1, 128), (1, 64))
)
"""At most 128 sums of a thread; fragments of factors need no registers."""


def warp_tile(sizes: Extents, target: Target, in_groups: bool, in_parts: bool) -> WarpTile | None:
    """The tile whose blocks are done first; None where none fits the target.

    `in_groups`: whether warp groups can make the product; `in_parts`: whether its terms may be summed in parts.
    """
    tiles = _TILES + (_GROUP_TILES if in_groups else ())
    found = [t for tile in tiles for t in _sized(tile, sizes, target, in_parts and sizes.m is not None)]
    cores = cores_of(target)
    best = min(found, key=lambda tile: _cost(tile, sizes, cores), default=None)
    return None if best is None else replace(best, together=rows_together(sizes.m, sizes.n, best.block, cores))


def _sized(tile: WarpTile, sizes: Extents, target: Target, in_parts: bool) -> Iterator[WarpTile]:
    """A tile with the steps and stages that fit a target, by the parts of the terms."""
    in_groups = tile.lanes == GROUP
    most = limits(target).shared_bytes - GROUP_SPARE if in_groups else min(_MOST_SHARED, limits(target).shared_bytes)
    if tile.threads > limits(target).max_threads:
        return
    blocks = _blocks(tile, sizes)
    for parts in (n for n in PARTS if n == 1 or (in_parts and blocks < cores_of(target))):
        length = sizes.length // parts
        if sizes.length % parts or (parts > 1 and length < _LEAST_PART):
            continue
        for row in (GROUP_BYTES,) if in_groups else _ROW_BYTES:
            stages = min(_STAGES, most // (sum(tile.block) * row), length // row)
            if length % row == 0 and stages >= min(_FEWEST_STAGES, length // row):
                yield replace(tile, depth=row // sizes.itemsize, stages=stages, parts=parts)
                break


def _blocks(tile: WarpTile, sizes: Extents) -> int:
    """Tiles of a product."""
    down, across = -(-(sizes.m or MANY) // tile.block[0]), -(-(sizes.n or MANY) // tile.block[1])
    return down * across * (sizes.batches or 1)


def _cost(tile: WarpTile, sizes: Extents, cores: int) -> tuple[float, int, int]:
    """The sums that a multiprocessor could update in the time that its blocks take, reads and copies added."""
    (rows, columns), warp = tile.block, tile.warp
    blocks, area = _blocks(tile, sizes) * tile.parts, rows * columns
    update = _GROUP_RATE if tile.lanes == GROUP else 1 + _READ_COST * sum(warp) / (warp[0] * warp[1])
    fetches = _FETCH_COST * (rows + columns) / area
    steps = sizes.length / tile.parts / DEPTH_BYTES
    adding = adding_cost(blocks * area, tile.parts, cores)
    return -(-blocks // cores) * area * steps * (update + fetches) + adding, area, tile.parts
