"""A curve in a few lines of a terminal, drawn with the dots of Braille letters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise

from rich.text import Text

Point = tuple[float, float]

_BITS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # of the two columns of a letter, from the top
_BLANK = 0x2800


def draw_curve(
    points: Sequence[Point], best: Sequence[Point], columns: int, rows: int, styles: tuple[str, str]
) -> list[Text]:
    """Lines of text that show `points` as dots and `best` as a staircase to the right end.

    Both have coordinates from 0 to 1, from the lower left. A letter that the staircase runs through has its style, the
    second of `styles`; a letter shows one of both only, so that each keeps its color.
    """
    width, height = 2 * columns, 4 * rows
    cloud, stairs = (_letters(_pixels(found, width, height)) for found in (points, _staircase(best, 1 / width)))
    return [
        Text.assemble(*_runs([(stairs.get((x, y)), cloud.get((x, y), 0)) for x in range(columns)], styles))
        for y in range(rows)
    ]


def _runs(letters: Iterable[tuple[int | None, int]], styles: tuple[str, str]) -> Iterator[tuple[str, str]]:
    """Letters of equal style together: a terminal is told of a style once for each."""
    for on_stairs, run in groupby(letters, lambda both: both[0] is not None):
        bits = (cloud if stair is None else stair for stair, cloud in run)
        yield "".join(chr(_BLANK + b) if b else " " for b in bits), styles[on_stairs]


def _staircase(best: Sequence[Point], step: float) -> Iterable[Point]:
    """Points so close that they make a line."""
    for (x, y), (end, _) in pairwise([*best, (1.0, 0.0)] if best else []):
        for n in range(int((end - x) / step) + 2):
            yield min(x + n * step, end), y
    for (_, low), (x, high) in pairwise(best):
        for n in range(101):
            yield x, low + (high - low) * n / 100


def _pixels(points: Iterable[Point], width: int, height: int) -> set[tuple[int, int]]:
    """Dots, counted from the upper left."""
    return {(_within(x * (width - 1), width), _within((1 - y) * (height - 1), height)) for x, y in points}


def _within(place: float, size: int) -> int:
    return min(size - 1, max(0, round(place)))


def _letters(pixels: Iterable[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """The bits of every letter that has any."""
    letters: dict[tuple[int, int], int] = {}
    for x, y in pixels:
        place = x // 2, y // 4
        letters[place] = letters.get(place, 0) | _BITS[x % 2][y % 4]
    return letters
