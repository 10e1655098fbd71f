"""What a block of threads takes of an attention on tensor cores: queries, keys, and who multiplies.

Warps multiply 16 rows of queries each, by mma.sync (sm_80 and later), warp groups 64, by wgmma (sm_90a).
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorlang.dataclass import dataclass
from tensorlang.schedules.cpu.attention import TENSOR_CORE_KEYS, TENSOR_CORE_WIDTH, query_tile
from tensorlang.schedules.gpu.blocks import WARP, limits
from tensorlang.schedules.gpu.tensor_cores import multiplies
from tensorlang.schedules.gpu.warp_tile import GROUP, GROUP_ROWS, GROUP_SPARE
from tensorlang.target.backend import resolved
from tensorlang.target.spec import Target

ROWS, COLUMNS, DEPTH = 16, 8, 16
"""The tile of one mma.sync of 16-bit elements."""
CHUNK = 8
"""Elements of one copy to shared memory."""
LINE = 64
"""Elements that lie in all banks of shared memory, and in a panel of what warp groups multiply."""
_AT_ONCE = (32, 16)
"""Columns of values that a warp mixes and merges at a time: their accumulators are free for the next ones then."""
_GROUP_KEYS = (128, 64)
"""Keys of a block of warp groups; the last where values are narrow: then registers are left for two blocks."""
_BYTES = 2
"""Bytes of an element."""
_HELD = 144
"""Registers for queries and for sums, beside which scores, weights and addresses fit the 255 of a thread."""
_GROUP_HELD = 160
"""Registers of a thread of a warp group for sums, mixed values and weights, or scores."""


@dataclass(frozen=True, slots=True)
class AttentionTile:
    """`teams` of `lanes` threads, a warp or a warp group, have `rows` queries each, and see blocks of so many `keys`.

    `at_once`: columns of values that are mixed at a time; `stages`: blocks of keys in shared memory at once.
    """

    lanes: int
    rows: int
    teams: int
    keys: int
    at_once: int
    stages: int

    @property
    def queries(self) -> int:
        """Queries of a block."""
        return self.rows * self.teams

    @property
    def in_groups(self) -> bool:
        """Whether warp groups multiply."""
        return self.lanes == GROUP

    def shared_bytes(self, depth: int, width: int) -> int:
        """Shared memory for queries of a depth, and for all blocks of keys and of values of a width."""
        keys = self.stages * self.keys
        spare = GROUP_SPARE if self.in_groups else 0
        return _BYTES * ((self.queries + keys) * length(depth) + keys * length(width)) + spare


def length(width: int) -> int:
    """Elements from one row of a tile to the next: some more than the row has where it is not swizzled."""
    return width if is_swizzled(width) else width + CHUNK


def is_swizzled(width: int) -> bool:
    """Whether turning the chunks of rows lets eight down a column lie in other banks."""
    return not width % LINE or width in (LINE // 2, LINE // 4)


def attention_tiles(target: Target, dtype: str, n: int | None, depth: int, width: int) -> Iterator[AttentionTile]:
    """The tiles for n queries of a depth, and values of a width, that a target has all for, the best first."""
    if not multiplies(target, dtype, dtype, "float32") or depth % TENSOR_CORE_WIDTH or width % TENSOR_CORE_WIDTH:
        return
    if resolved(target).can.warp_groups:
        yield from _of_groups(target, n, depth, width)
    yield from _of_warps(target, n, depth, width)


def _of_groups(target: Target, n: int | None, depth: int, width: int) -> Iterator[AttentionTile]:
    if depth % LINE or width % LINE or width > 4 * LINE or (n is not None and n <= GROUP_ROWS):
        return
    for keys in _GROUP_KEYS if width > LINE else _GROUP_KEYS[-1:]:
        for stages in (2, 1):
            tile = AttentionTile(GROUP, GROUP_ROWS, 2, keys, min(width, 2 * LINE), stages)
            held = (width + max(keys, keys // 2 + tile.at_once)) // 2
            if held <= _GROUP_HELD and _has_room(target, tile, depth, width):
                yield tile


def _of_warps(target: Target, n: int | None, depth: int, width: int) -> Iterator[AttentionTile]:
    rows = query_tile(n)
    at_once = next(w for w in _AT_ONCE if width % w == 0)
    for stages in (2, 1):
        tile = AttentionTile(WARP, ROWS, rows // ROWS, TENSOR_CORE_KEYS, at_once, stages)
        held = depth * ROWS // (2 * WARP) + width * ROWS // WARP
        if held <= _HELD and _has_room(target, tile, depth, width):
            yield tile


def _has_room(target: Target, tile: AttentionTile, depth: int, width: int) -> bool:
    most = limits(target)
    return tile.teams * tile.lanes <= most.max_threads and tile.shared_bytes(depth, width) <= most.shared_bytes
