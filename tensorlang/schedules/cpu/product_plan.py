"""The sizes of a schedule for a product of matrices, computed from its extents and the machine."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from math import ceil, gcd, prod

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.schedules.accesses import LINE, PAGE
from tensorlang.schedules.cpu.dots import in_order
from tensorlang.schedules.cpu.register_tile import MANY, RegisterTile, fixed_width, register_tile, side_by_side
from tensorlang.schedules.product import Product
from tensorlang.target.spec import Target

_ROWS_IN_PLACE, _ROWS_OF_PANELS = 12, 14
"""Rows of A at most that are read side by side: as many as the first cache has ways, as many as 32 registers hold with
panels of B.
"""
_L2_WAYS = 16
_GRAIN = 1 << 20
"""Operations below which a second thread costs more than it brings."""
_EVEN = 0.95
"""Shares of the work that are this even are not made more even at the price of smaller blocks."""
_STREAMED, _STREAMED_VECTORS, _STREAMED_TILE = 8, (2, 4), 20
"""Rows of B that are read side by side when B is read once, as many as the first cache has ways; vectors of each at a
time, at least and at most; and vectors of a tile, about.
"""
_STEPS = 4
"""Terms that are written out where B is read as it lies: what counts them is a part of so short a loop."""
_FEW_PANELS, _MANY_PANELS, _MORE_PANELS = 3, 16, 64
"""Panels of B from which on a copy of A pays: where its rows lie apart, where they come from far, and where the panels
push them out of the first cache.
"""
_ROWS_STAY, _TURNS = 0.75, 4
"""The part of the second cache that the rows of A may take beside panels that are fetched; turns of steps that share
out a panel.
"""
_CROWDED = 0.5
"""The part of the first cache that a tile of A may take beside panels."""
_FEW, _FEW_IN_ROWS, _FEW_NARROW = 4, 32, 128
"""Rows of A (columns of B) for which the rows of the other factor are multiplied as they lie, along the terms, however
few these are; rows of A where there are terms enough; where B comes from memory, and is narrower than the sums.
"""
_TERMS_EACH, _TERMS_EACH_BY_FAR = 32, 16
"""Terms for each of so many rows, which the sums across lanes are spread over."""
_AT_ONCE = 6
"""As many rows of A make one tile there; more of them several of `_FEW`."""
_LEAST_TILES = 4
"""Tiles of columns for which fetching a later one ahead is of use."""
LEAST_DEPTH = 96
"""Terms that are worth reading and writing the output for."""
_SIDE_BY_SIDE, _SIDE_BY_SIDE_FAR = 4, 8
"""Rows that are read at the same time; such as are fetched from memory meanwhile."""
_PACKING, _PACKING_APART, _APART = 512, 160, 512
"""Rows of A from which copying B pays; fewer, where the second cache holds less than so many rows of B in place."""
_SHARE_OF_A = 4
"""Of the first cache, a tile of A takes so small a part, when the terms are cut anyway."""


class Reading(Enum):
    """How B is read: in vectors of terms; once, many rows side by side; where it lies; where it lies, each tile of
    columns (each panel, if it came packed) by all rows in turn, which fetch a later one; or from panels that it is
    copied into.
    """

    DOTS = "in vectors of terms"
    STREAMED = "once, many rows side by side"
    NEAR = "where it lies"
    FETCHED = "where it lies, fetched ahead"
    PANELS = "from panels that it is copied into"


@dataclass(frozen=True, slots=True)
class Plan:
    """`tile`: of registers. `block`: columns whose B (whose output, if B is fetched) stays in the second cache.
    `depth`: terms summed in registers, or None for all of them; `steps`: as many of those make one turn of the loop.
    `pack_a`: A is laid out in panels first. `shared`: the loop that threads share, over `columns` or `rows`, if any.
    """

    reading: Reading
    tile: RegisterTile
    block: int
    depth: int | None
    steps: int
    pack_a: bool
    shared: str


def plan_of(product: Product, target: Target) -> Plan:
    """Choose the sizes for a product on a machine."""
    if is_few_dots(product, target):
        return _plan_of_dots(product, target)
    most = _ROWS_IN_PLACE if product.packed_width is None else _ROWS_OF_PANELS
    plan, near = _plan_around(product, target, most), _rows_side_by_side(product)
    return _plan_around(product, target, near) if near < most and not plan.pack_a else plan


def _plan_around(product: Product, target: Target, most_rows: int) -> Plan:
    """The loops around tiles of so many rows at most."""
    tile = _tile(product, target, most_rows)
    form = _form(product, target, tile)
    plan = _plan_of_tiles(product, target, tile, form)
    if form is Reading.FETCHED and plan.shared == "rows":  # which run inside those of columns
        return _plan_of_tiles(product, target, tile, Reading.NEAR if product.packed_width else Reading.PANELS)
    return plan


def _plan_of_tiles(product: Product, target: Target, tile: RegisterTile, form: Reading) -> Plan:
    """The loops around tiles of registers."""
    m, n, k = product.m or MANY, product.n or MANY, product.depth or MANY
    size = max(1, product.bits // 8)
    cache = target.second_cache // 2
    panels = fitting = ceil(n / tile.width)
    steps = 1
    if form is Reading.STREAMED:
        depth = _streamed_depth(product, cache)
        steps = depth or max(_STEPS, _STREAMED // tile.rows)
        if depth is not None:
            tile = _streamed_tile(tile, target.lanes(product.bits))
            panels = fitting = ceil(n / tile.width)
    elif form is Reading.FETCHED:
        steps = ceil(m / tile.rows)
        depth = None if product.packed_width else _fetched_depth(product, target, tile, steps)
        fitting = max(1, 2 * cache // (m * tile.width * size))
    else:
        steps = _STEPS if form is Reading.NEAR else 1
        depth = _depth(product, cache // (tile.width * size))
        fitting = max(1, cache // ((depth or k) * tile.width * size))
    cores = _threads(product, target)
    shared, block = shares(product.batches or MANY, n / tile.width, ceil(m / tile.rows), fitting, cores)
    pack_a = _packs_rows(product, target, tile, depth or k, panels)
    return Plan(form, tile, block * tile.width, depth, steps, pack_a, shared)


def _form(product: Product, target: Target, tile: RegisterTile) -> Reading:
    """How the tiles of a product read B."""
    m = product.m or MANY
    if product.packed_width is not None:
        return Reading.FETCHED if _panels_are_fetched(product, target, tile) else Reading.NEAR
    if m <= tile.rows and not product.b_transposed:
        return Reading.STREAMED
    if product.n is None:
        return Reading.NEAR
    if product.b_transposed or product.depth is None:
        return Reading.PANELS
    stay, whole = _rows_that_stay(product, target, tile), product.depth * product.n * product.bits // 8
    if whole < target.second_cache and product.depth <= stay:
        return Reading.NEAR
    few = m < (_PACKING_APART if stay < _APART else _PACKING)
    return Reading.FETCHED if few and product.n >= _LEAST_TILES * tile.width else Reading.PANELS


def _panels_are_fetched(product: Product, target: Target, tile: RegisterTile) -> bool:
    """Whether the rows of A take turns at each panel of B, which may come from far: they stay in the second cache."""
    if product.m is None or product.depth is None or (product.n or 0) <= tile.width:
        return False
    tiles, size = ceil(product.m / tile.rows), product.m * product.depth * product.bits // 8
    return 1 < tiles <= product.depth // _TURNS and size <= target.second_cache * _ROWS_STAY


def _packs_rows(product: Product, target: Target, tile: RegisterTile, depth: int, panels: int) -> bool:
    """Whether A is laid out in panels: its rows are columns in memory, or a tile of them does not stay near."""
    if product.m is None or product.m <= tile.rows or product.a.buffer.name == product.b.buffer.name:
        return False  # a copy of what both read in panels of rows would be read in vectors of columns, too
    if product.a_transposed:
        return panels >= _FEW_PANELS
    held = tile.rows * depth * product.bits // 8 / target.caches[0]
    return panels >= (_MANY_PANELS if held > 1 else _MORE_PANELS if held > _CROWDED else MANY)


def is_few_dots(product: Product, target: Target) -> bool:
    """Whether both factors have their terms side by side, and one too few rows to turn the other around for."""
    m, n, terms, lanes = product.m or MANY, product.n or MANY, product.depth or 0, target.lanes(product.bits)
    side_by_side = not product.a_transposed and (product.b_transposed or product.n == 1)
    if not side_by_side or product.packed_width is not None or terms < 4 * lanes:
        return False
    few, far = min(m, n), is_far(product, target)
    if few <= _FEW:
        return True
    if terms < few * (_TERMS_EACH_BY_FAR if far else _TERMS_EACH):
        return False
    if n < m:  # a copy of so few columns costs little, but fills no vector
        return n < lanes
    size = dtypes.info(product.b.buffer.dtype).bytes
    most = _FEW_NARROW if far and 8 * size < product.bits else _FEW_IN_ROWS
    return m <= most and m * terms * size <= target.second_cache


def _plan_of_dots(product: Product, target: Target) -> Plan:
    """A tile of dot products: of the longer side as many as registers allow, read side by side."""
    m, n = product.m or MANY, product.n or MANY
    few, side_by_side = min(m, n), _SIDE_BY_SIDE_FAR if is_far(product, target) else _SIDE_BY_SIDE
    if few > _AT_ONCE:
        few = ceil(few / ceil(few / _FEW))
    many = max(1, min(side_by_side, (target.vector_registers - 1) // (few + 1), max(m, n)))
    if _rows_in_order(product, min(m, n), max(m, n), target):
        many = 1
    rows, columns = (few, many) if m <= n else (many, few)
    shared = "columns" if _threads(product, target) > 1 else ""
    return Plan(Reading.DOTS, RegisterTile(rows, rows * columns, columns), columns, None, 1, False, shared)


def is_far(product: Product, target: Target) -> bool:
    """Whether the factor with more rows comes from memory."""
    elements = max(product.m or 0, product.n or 0) * (product.depth or 0)
    return elements * dtypes.info(product.b.buffer.dtype).bits // 8 > target.caches[-1] // 3


def _rows_in_order(product: Product, few: int, many: int, target: Target) -> bool:
    """Whether the many rows are read one after the other: by one vector, or from memory, by a few that stay near."""
    terms, stored = product.depth or MANY, dtypes.info(product.a.buffer.dtype).bits
    if few > _FEW:
        return False
    if few == 1:
        return in_order(many, terms, stored, product.bits, target)
    first, last = target.caches[0], target.caches[-1]
    return few * terms * product.bits // 8 <= first // 4 and many * terms * stored // 8 > last // 3


def _threads(product: Product, target: Target) -> int:
    """The threads that are worth their start."""
    extents = (product.batches, product.m, product.n, product.depth)
    return target.cores if 2 * prod(MANY if e is None else e for e in extents) >= _GRAIN else 1


def _tile(product: Product, target: Target, most_rows: int) -> RegisterTile:
    m, n, width = product.m or MANY, product.n or MANY, product.packed_width
    if width is not None:
        return fixed_width(m, width, target, product.bits, most_rows)
    return register_tile(m, n, target, product.bits, most_rows)


def _rows_side_by_side(product: Product) -> int:
    """How many rows of A the first cache keeps at a time."""
    apart = _row_bytes(product)
    return MANY if product.a_transposed or apart is None else side_by_side(apart)


def _row_bytes(product: Product) -> int | None:
    """The distance of rows of A in memory, if it is known."""
    columns = product.depth if not product.a_transposed else product.m
    return None if columns is None else columns * dtypes.info(product.a.buffer.dtype).bytes


def _rows_that_stay(product: Product, target: Target, tile: RegisterTile) -> int:
    """Of how many rows of B the second cache holds the columns of a tile: rows that lie apart share its sets."""
    size = product.bits // 8
    stride = max(1, (product.n or MANY) * size // LINE)
    sets = target.second_cache // (LINE * _L2_WAYS)
    lines = ceil(tile.width * size / LINE) + 1
    reached = min(sets, sets // gcd(sets, stride) * min(lines, gcd(sets, stride)))
    return reached * _L2_WAYS // lines


def _streamed_depth(product: Product, cache: int) -> int | None:
    """The rows of B that are read side by side when all of B is read once: a few, so that each is read far ahead.

    Rows of less than a page, or a B that is in the cache, are read just as well from the first to the last.
    """
    if product.n is None or product.depth is None:
        return None
    row_bytes = product.n * product.bits // 8
    near = row_bytes < PAGE or product.depth <= _STREAMED or product.depth * row_bytes <= cache
    return None if near else _STREAMED


def _streamed_tile(tile: RegisterTile, lanes: int) -> RegisterTile:
    """A tile of a few vectors of each row of B."""
    least, most = _STREAMED_VECTORS
    vectors = min(tile.width // lanes, most, max(least, _STREAMED_TILE // tile.rows))
    return replace(tile, vectors=vectors, width=vectors * lanes) if vectors else tile


def _fetched_depth(product: Product, target: Target, tile: RegisterTile, steps: int) -> int | None:
    """The terms that are summed at once from a B in place: a tile's columns of it stay in the second cache.

    A tile of rows of A stays in the first, or, when the terms are cut anyway, in a part of that.
    Parts are full turns of `steps`.
    """
    of_a, stay = target.caches[0] // (tile.rows * product.bits // 8), _rows_that_stay(product, target, tile)
    if product.depth is not None and product.depth <= min(of_a, stay):
        return None
    part = _depth(product, min(of_a // _SHARE_OF_A, stay))
    return None if part is None else ceil(part / steps) * steps


def _depth(product: Product, fitting: int) -> int | None:
    """The terms that are summed at once: all, unless so much of B would not stay in the cache; then even parts."""
    most = max(LEAST_DEPTH, fitting)
    if product.depth is None or product.depth <= most:
        return None
    parts = ceil(product.depth / most)
    return ceil(product.depth / parts)


def shares(batches: int, filled: float, row_tiles: int, fitting: int, cores: int) -> tuple[str, int]:
    """The loop that threads share, and the panels of a block: as many as fit, but even shares for the cores.

    `filled`: how many panels there are, of the last a part, which makes a difference where threads share one product.
    """
    panels = ceil(filled)
    amount = filled if batches == 1 else panels
    if cores == 1:
        return "", ceil(panels / ceil(panels / fitting))

    def evenness(block: int) -> float:
        blocks = batches * ceil(panels / block)
        return batches * amount / (cores * ceil(blocks / cores) * block)

    candidates = range(min(fitting, panels), 0, -1)
    block = next((b for b in candidates if evenness(b) >= _EVEN), max(candidates, key=evenness))
    by_rows = row_tiles / (cores * ceil(row_tiles / cores))
    if evenness(block) >= min(_EVEN, by_rows):
        return "columns", block
    return "rows", min(fitting, panels)
