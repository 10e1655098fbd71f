"""The sizes of a schedule for a product of matrices, computed from its extents and the machine."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, gcd, prod

from tensorlang import dtypes
from tensorlang.target.spec import Target
from tensorlang.topi.product import Product
from tensorlang.topi.register_tile import MANY, RegisterTile, fixed_width, register_tile

_LINE = 64
_PAGE = 4096
_L2_WAYS = 16
_GRAIN = 1 << 20
"""Operations below which a second thread costs more than it brings."""
_EVEN = 0.95
"""Shares of the work that are this even are not made more even at the price of smaller blocks."""
_STREAMED = 8
"""Rows of B that are read side by side, for each row of A, when B is read once."""
_FEW_PANELS, _MANY_PANELS = 3, 16
"""Panels of B from which on a copy of A pays: where its rows lie apart, and where they only come from far."""
_FEW = 4
"""Rows of A (columns of B) for which the rows of the other factor are multiplied as they lie, along the terms."""
_SIDE_BY_SIDE = 4
"""Rows that are read at the same time."""
_FAR_DEPTH = 256
"""Terms that are summed at once when packing a B from memory takes most of the time."""
_PACKING = 256
"""With fewer rows of A, copying B costs more than reading it out of line."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`tile`: of registers. `block`: columns whose B stays in the second cache. `depth`: terms summed in registers, or
    None for all of them; `unroll`: as many steps of those are written out. `dots`: vectors run along the terms, not
    along columns. `pack_a`, `pack_b`: what is laid out in panels first. `shared`: the loop that threads share, over
    `columns` or `rows`, if any.
    """

    tile: RegisterTile
    block: int
    depth: int | None
    unroll: int
    dots: bool
    pack_a: bool
    pack_b: bool
    shared: str


def plan_of(product: Product, target: Target) -> Plan:
    """Choose the sizes for a product on a machine."""
    if _is_few_dots(product, target):
        return _plan_of_dots(product, target)
    m, n, k = product.m or MANY, product.n or MANY, product.depth or MANY
    size = max(1, product.bits // 8)
    tile = _tile(product, target, m, n)
    cache = target.caches[min(1, len(target.caches) - 1)] // 2
    streams = m <= tile.rows and product.packed_width is None and not product.b_transposed
    may_pack = product.packed_width is None and product.n is not None
    pack_b = may_pack and not streams and not _is_near(product, target, tile)
    far = pack_b and not product.b_transposed and m < _PACKING and k * n * size > target.caches[-1] // 2
    depth = _streamed_depth(product, tile, cache) if streams else _depth(product, cache, tile.width * size, far)
    panels = ceil(n / tile.width)
    fitting = panels if streams else max(1, cache // ((depth or k) * tile.width * size))
    cores = _threads(product, target)
    shared, block = _shares(product.batches or MANY, panels, ceil(m / tile.rows), fitting, cores)
    unroll = max(1, _STREAMED // tile.rows) if streams else 1
    pack_a = _packs_rows(product, target, tile, depth or k, panels)
    return Plan(tile, block * tile.width, depth, unroll, False, pack_a, pack_b, shared)


def _packs_rows(product: Product, target: Target, tile: RegisterTile, depth: int, panels: int) -> bool:
    """Whether A is laid out in panels: its rows are columns in memory, or a tile of them does not stay near."""
    if product.m is None or product.m <= tile.rows:
        return False
    far = tile.rows * depth * product.bits // 8 > target.caches[0]
    return panels >= (_FEW_PANELS if product.a_transposed else _MANY_PANELS if far else MANY)


def _is_few_dots(product: Product, target: Target) -> bool:
    """Whether both factors have their terms side by side, and one too few rows to turn the other around for."""
    few = min(product.m or MANY, product.n or MANY) <= _FEW
    long = product.depth is not None and product.depth >= 4 * target.lanes(product.bits)
    side_by_side = not product.a_transposed and (product.b_transposed or product.n == 1)
    return few and long and side_by_side and product.packed_width is None


def _plan_of_dots(product: Product, target: Target) -> Plan:
    """A tile of dot products: of the longer side as many as registers allow, read side by side."""
    m, n = product.m or MANY, product.n or MANY
    few = min(m, n)
    many = max(1, min(_SIDE_BY_SIDE, (target.vector_registers - 1 - few) // few, max(m, n)))
    rows, columns = (few, many) if m <= n else (many, few)
    shared = "columns" if _threads(product, target) > 1 else ""
    return Plan(RegisterTile(rows, rows * columns, columns), columns, None, 1, True, False, False, shared)


def _threads(product: Product, target: Target) -> int:
    """The threads that are worth their start."""
    extents = (product.batches, product.m, product.n, product.depth)
    return target.cores if 2 * prod(MANY if e is None else e for e in extents) >= _GRAIN else 1


def _tile(product: Product, target: Target, m: int, n: int) -> RegisterTile:
    stride = _row_bytes(product)
    most_rows = 8 if not product.a_transposed and stride is not None and stride % _PAGE == 0 else 12
    width = product.packed_width
    if width is not None:
        return fixed_width(m, width, target, product.bits, most_rows)
    return register_tile(m, n, target, product.bits, most_rows)


def _row_bytes(product: Product) -> int | None:
    """The distance of rows of A in memory, if it is known."""
    columns = product.depth if not product.a_transposed else product.m
    return None if columns is None else columns * dtypes.info(product.a.buffer.dtype).bytes


def _is_near(product: Product, target: Target, tile: RegisterTile) -> bool:
    """Whether B is used in place: few rows of A use it, and a panel of it stays in the second cache as it lies."""
    if product.b_transposed or product.n is None or product.depth is None or (product.m or MANY) >= _PACKING:
        return False
    size = product.bits // 8
    stride = max(1, product.n * size // _LINE)
    sets = target.caches[min(1, len(target.caches) - 1)] // (_LINE * _L2_WAYS)
    lines = ceil(tile.width * size / _LINE) + 1
    reached = min(sets, sets // gcd(sets, stride) * min(lines, gcd(sets, stride)))
    return product.depth * lines <= reached * _L2_WAYS // 2


def _streamed_depth(product: Product, tile: RegisterTile, cache: int) -> int | None:
    """The rows of B that are read side by side when all of B is read once: a few, so that each is read far ahead.

    Rows of less than a page, or a B that is in the cache, are read just as well from the first to the last.
    """
    if product.n is None or product.depth is None:
        return None
    row_bytes = product.n * product.bits // 8
    depth = _STREAMED * tile.rows
    return None if row_bytes < _PAGE or product.depth <= depth or product.depth * row_bytes <= cache else depth


def _depth(product: Product, cache: int, width_bytes: int, far: bool) -> int | None:
    """The terms that are summed at once: all, unless a panel of B would not stay in the cache; then even parts.

    A B that comes from memory for a few rows of A is read in wide blocks of fewer rows instead.
    """
    most = max(64, cache // width_bytes)
    if far:
        most = min(most, _FAR_DEPTH)
    if product.depth is None or product.depth <= most:
        return None
    parts = ceil(product.depth / most)
    return ceil(product.depth / parts)


def _shares(batches: int, panels: int, row_tiles: int, fitting: int, cores: int) -> tuple[str, int]:
    """The loop that threads share, and the panels of a block: as many as fit, but even shares for the cores."""
    if cores == 1:
        return "", min(fitting, panels)

    def evenness(block: int) -> float:
        blocks = batches * ceil(panels / block)
        return batches * panels / (cores * ceil(blocks / cores) * block)

    candidates = range(min(fitting, panels), 0, -1)
    block = next((b for b in candidates if evenness(b) >= _EVEN), max(candidates, key=evenness))
    by_rows = row_tiles / (cores * ceil(row_tiles / cores))
    if evenness(block) >= min(_EVEN, by_rows):
        return "columns", block
    return "rows", min(fitting, panels)
