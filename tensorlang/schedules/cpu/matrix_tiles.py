"""Which tiles of the matrix unit a product or a convolution of narrow numbers is made of, where a CPU has one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import gcd

from tensorlang import dtypes, te
from tensorlang.dataclass import dataclass
from tensorlang.ir.affine import Affine, affine
from tensorlang.ir.expr import Load
from tensorlang.schedule.stage import Stage
from tensorlang.schedules.words import data_and_panels
from tensorlang.target.detect import target_cpu
from tensorlang.target.llvm.instructions import FEATURES, INSTRUCTIONS, MOST_COLUMNS, MOST_ROWS, ROWS, WORD, Tiles
from tensorlang.target.spec import Target
from tensorlang.te.axis import Axis, extent_of
from tensorlang.te.operation import ComputeOp

_LOAD, _FETCH = 0.5, 16
"""Cycles in which a row of data comes from the first cache, and a tile of a panel from the second.

A tile of a panel is multiplied in as many as the data have rows.
"""
_MOST_BANDS = 12
"""Rows of an image, at most, that are multiplied by one tile of a panel."""
_DOT_WORDS = 2
"""Dot instructions that start in a cycle; tiles are worth while where they take fewer cycles than those."""


def has_tiles(data: str, weight: str, target: Target) -> bool:
    """Whether the matrix unit of a target multiplies data and weights of these dtypes."""
    if not target.can.native or (data, weight) not in INSTRUCTIONS:
        return False
    return target_cpu(target).features.issuperset(FEATURES[weight])


def panel_width(units: int) -> int:
    """The columns that suit panels of weights with so many: those of two tiles, or of one."""
    return MOST_COLUMNS if units > ROWS else ROWS


@dataclass(frozen=True, slots=True)
class Sums:
    """The sizes of sums: rows and columns of pixels (the rows of a product have one column), places of a window, words
    of each, and columns of a panel.
    """

    high: int
    wide: int
    taps: tuple[int, int]
    words: int
    width: int


def tiles_for(sums: Sums, data: str, weight: str, target: Target) -> Tiles | None:
    """The tiles that make sums of these sizes soonest; None where dot instructions do it sooner, or data are cut."""
    if not has_tiles(data, weight, target):
        return None
    first = Tiles(data, weight, (1, 1), ROWS, (*sums.taps, sums.words))
    columns = [n for n in (MOST_COLUMNS, ROWS) if sums.width % n == 0]
    return _best(replace(first, rows=rows, columns=n) for rows in _possible_rows(sums.high, sums.wide) for n in columns)


@dataclass(frozen=True, slots=True)
class Pixels:
    """The axes along which results lie and windows move, downwards and to the right; "" for none."""

    down: str
    right: str = ""
    window: tuple[str, str] = ("", "")


def tiles_of(op: ComputeOp, pixels: Pixels, target: Target) -> Tiles | None:
    """The tiles that make the sums over panels of a stage soonest; None where dot instructions do it sooner."""
    data, panels = data_and_panels(op)
    term, extents = op.reduce_axes[-1].name, {a.name: extent_of(a.extent) for a in (*op.axes, *op.reduce_axes)}
    sizes = {name: size for name, size in extents.items() if size is not None} | {"": 1}
    moves = _moves(data, pixels, term)
    if len(sizes) <= len(extents) or moves is None:
        return None
    words = sizes[term] * dtypes.info(panels.dtype).bytes // WORD
    taps = sizes[pixels.window[0]], sizes[pixels.window[1]]
    sums = Sums(sizes[pixels.down], sizes[pixels.right], taps, words, sizes[op.axes[-1].name])
    found = tiles_for(sums, data.dtype, panels.dtype, target)
    return None if found is None else replace(found, down=moves.down, right=moves.right, joint=moves.joint)


@dataclass(frozen=True, slots=True)
class _Moves:
    """Steps of data with a pixel and with a place of the window; `joint`: columns and terms share a dimension."""

    down: tuple[int, int]
    right: tuple[int, int]
    joint: bool


def _moves(data: Load, pixels: Pixels, term: str) -> _Moves | None:
    """How data move with pixels; None unless terms lie side by side, and each way is that of one dimension."""
    forms = [form for index in data.index if (form := affine(index)) is not None]
    if len(forms) < len(data.index) or [form[term] for form in forms if term in form] != [1]:
        return None
    down, right = (
        [form for form in forms if form.keys() & ({axis, tap} - {""})]
        for axis, tap in ((pixels.down, pixels.window[0]), (pixels.right, pixels.window[1]))
    )
    if len(down) > 1 or len(right) > 1 or any(term in form for form in down):
        return None
    joint = any(term in form for form in right)
    steps = _steps(right, pixels.right, pixels.window[1])
    return _Moves(
        _in_lowest_terms(_steps(down, pixels.down, pixels.window[0])),
        steps if joint else _in_lowest_terms(steps),
        joint,
    )


def _steps(forms: Sequence[Affine], axis: str, tap: str) -> tuple[int, int]:
    form = forms[0] if forms else {}
    return form.get(axis, 1) if axis else 1, form.get(tap, 1) if tap else 1


def _in_lowest_terms(steps: tuple[int, int]) -> tuple[int, int]:
    common = gcd(*steps)
    return steps[0] // common, steps[1] // common


def _possible_rows(high: int, wide: int) -> Iterator[tuple[int, int]]:
    """Tiles of pixels that cut an image evenly: parts of a row, or of several rows."""
    if wide == 1:
        yield from ((n, 1) for n in _even_parts(high, MOST_ROWS))
        return
    for n in _even_parts(wide, MOST_ROWS):
        yield from ((bands, n) for bands in (1, *_even_parts(high, _MOST_BANDS)))


def _even_parts(extent: int, most: int) -> list[int]:
    return [n for n in range(2, min(extent, most) + 1) if extent % n == 0]


def _best(possible: Iterable[Tiles]) -> Tiles | None:
    """The tiles that take the fewest cycles for a sum; None where dot instructions take fewer than any."""
    best = min(
        (t for t in possible if t.fits), key=lambda t: (_cycles(t), -t.columns, -t.rows[0] * t.rows[1]), default=None
    )
    return best if best is not None and _cycles(best) < 1 / _DOT_WORDS else None


def _cycles(tiles: Tiles) -> float:
    """Cycles of a word of each row of the data, for 16 columns."""
    rows, columns = tiles.rows[0] * tiles.rows[1], tiles.panels
    return max(_LOAD * rows + _FETCH * columns * len(tiles.passes()), rows * columns) / (rows * columns) / tiles.step


def multiply_tiles(stage: Stage, tiles: Tiles, pixels: Sequence[Axis], lane: Axis) -> None:
    """Have the matrix unit make the sums of `pixels` and lanes, which are the inner loops of a stage."""
    *window, terms = stage.op.reduce_axis
    vector, inner = stage.split(lane, factor=tiles.columns)
    word, term = stage.split(terms, factor=tiles.group)
    stage.reorder(vector, *pixels, inner, *window, word, term)
    stage.tensorize(pixels[0], te.intrin(tiles.name))
