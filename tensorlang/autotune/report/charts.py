"""Charts as SVG: axes with round ticks, dots, steps, bars. Colors come from classes, which the page's style sets.

Dots are one path, thinned to what the eye can tell apart, so that ten thousand trials take some ten kilobytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from tensorlang.dataclass import dataclass
from tensorlang.markup import Markup, element

WIDTH, HEIGHT = 480, 296
LEFT, RIGHT, TOP, BOTTOM = 56, 20, 50, 40
LEAST_BAR = 2
MOST_TICKS = 7
Point = tuple[float, float]

_CLOCK_STEPS = (15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600)


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: its name, limits, ticks with their labels, and whether it is logarithmic."""

    name: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = False

    def place(self, value: float) -> float:
        """Where a value lies, from 0 to 1."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def nice_step(limit: float) -> float:
    """A round distance of ticks, for four to eight of them up to `limit`."""
    scale = 10.0 ** math.floor(math.log10(limit / 4))
    return max(scale * m for m in (1, 2, 2.5, 5) if scale * m <= limit / 4 * (1 + 1e-9))


def whole_step(limit: float) -> float:
    """The same for what is counted."""
    return max(1.0, math.floor(nice_step(limit)))


def clock_step(limit: float) -> float:
    """The same for seconds that are told as minutes and hours."""
    return next((step for step in _CLOCK_STEPS if limit / step <= MOST_TICKS), 3600 * whole_step(limit / 3600))


def linear(
    name: str,
    highest: float,
    label: Callable[[float], str],
    tight: bool = False,
    step: Callable[[float], float] = nice_step,
) -> Axis:
    """An axis from zero; it ends at a tick, or, when `tight`, at the highest value. `step` says how far ticks lie."""
    distance = step(highest)
    count = math.ceil(highest / distance * (1 - 1e-9))
    values = [n * distance for n in range(count + 1)]
    ticks = tuple((value, label(value)) for value in values if value <= highest or not tight)
    return Axis(name, 0.0, highest if tight else count * distance, ticks)


def logarithmic(name: str, lowest: float, highest: float, label: Callable[[float], str]) -> Axis:
    """A logarithmic axis around positive values, with some room at both ends."""
    low, high = lowest / 1.15, highest * 1.15
    inside = [value for value in _round_values(low, high) if low <= value <= high]
    every = max(1, math.ceil(len(inside) / MOST_TICKS))
    return Axis(name, low, high, tuple((value, label(value)) for value in inside[::every]), log=True)


def _round_values(low: float, high: float) -> list[float]:
    """Round values from below `low` to above `high`: even steps where these are close, then some of each decade."""
    if high / low < 2.5:
        step = nice_step(high - low)
        return [n * step for n in range(math.floor(low / step), math.ceil(high / step) + 1)]
    decades = math.log10(high / low)
    each = (1, 1.5, 2, 3, 4, 6, 8) if decades < 0.7 else (1, 2, 5) if decades < 2.5 else (1,)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [m * 10.0**n for n in range(first, last + 1) for m in each]


def chart(title: str, x: Axis, y: Axis, marks: Iterable[Callable[[Place], Markup]], summary: str) -> Markup:
    """A chart; every mark is drawn by a function of where its points lie. `summary` is for those who cannot see it."""
    place = Place(x, y)
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = [element("title", summary), _label(0, 14, title, "heading")]
    for value, words in y.ticks:
        at = place.y(value)
        parts += [_line("grid", LEFT, at, right, at), _label(LEFT - 7, at + 4, words, "tick end")]
    for value, words in x.ticks:
        at = place.x(value)
        parts += [_line("grid", at, bottom, at, bottom + 4), _label(at, bottom + 17, words, "tick middle")]
    parts.append(_line("rule", LEFT, bottom, right, bottom))
    parts.append(_label((LEFT + right) / 2, HEIGHT - 6, x.name, "axis middle"))
    parts.append(_label(0, 34, y.name, "axis"))
    parts += [mark(place) for mark in marks]
    return element("svg", *parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img")


@dataclass(frozen=True, slots=True)
class Place:
    """From values to places in the picture."""

    along: Axis
    up: Axis

    def x(self, value: float) -> float:
        """Pixels from the left."""
        return round(LEFT + (WIDTH - LEFT - RIGHT) * self.along.place(value), 1)

    def y(self, value: float) -> float:
        """Pixels from the top."""
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * self.up.place(value), 1)


def dots(points: Sequence[Point], most: int) -> Callable[[Place], Markup]:
    """A dot for every point; those that cover each other count once, and `most` are drawn."""

    def draw(place: Place) -> Markup:
        spots = list(dict.fromkeys((round(place.x(a)), round(place.y(b))) for a, b in points))
        every = max(1, math.ceil(len(spots) / most))
        return element("path", d="".join(f"M{a} {b}h0" for a, b in spots[::every]), class_="dots")

    return draw


def steps(points: Sequence[Point], until: float, most: int) -> Callable[[Place], Markup]:
    """A staircase through points, which goes on to `until`."""

    def draw(place: Place) -> Markup:
        kept = points[:: max(1, math.ceil(len(points) / most))]
        kept = kept if kept[-1] == points[-1] else [*kept, points[-1]]
        (first, height), *rest = [(place.x(a), place.y(b)) for a, b in kept]
        path = "".join(f"H{a:g}V{b:g}" for a, b in rest)
        return element("path", d=f"M{first:g} {height:g}{path}H{place.x(until):g}", class_="best")

    return draw


def marked(points: Sequence[Point], words: Sequence[str]) -> Callable[[Place], Markup]:
    """Circles that tell their words to who points at them."""

    def draw(place: Place) -> Markup:
        circles = (
            element("circle", element("title", text), cx=place.x(a), cy=place.y(b), r=4)
            for (a, b), text in zip(points, words, strict=True)
        )
        return element("g", *circles, class_="marked")

    return draw


def level(value: float, words: str) -> Callable[[Place], Markup]:
    """A dashed line across the chart, with words above it."""

    def draw(place: Place) -> Markup:
        at = place.y(value)
        return element(
            "g", _line("level", LEFT, at, WIDTH - RIGHT, at), _label(WIDTH - RIGHT, at - 5, words, "levelname end")
        )

    return draw


def diagonal(low: float, high: float) -> Callable[[Place], Markup]:
    """The dashed line on which x and y are equal."""

    def draw(place: Place) -> Markup:
        return _line("level", place.x(low), place.y(low), place.x(high), place.y(high))

    return draw


def bars(heights: Sequence[tuple[float, float, float]]) -> Callable[[Place], Markup]:
    """Bars as (from, to, height); the lowest can still be seen."""

    def draw(place: Place) -> Markup:
        floor = HEIGHT - BOTTOM
        tops = (min(place.y(h), floor - LEAST_BAR) for _, _, h in heights)
        boxes = (
            f"M{place.x(a) + 0.5:g} {floor}V{top:g}H{place.x(b) - 0.5:g}V{floor}z"
            for (a, b, _), top in zip(heights, tops, strict=True)
        )
        return element("path", d="".join(boxes), class_="bars")

    return draw


def _line(class_: str, x1: float, y1: float, x2: float, y2: float) -> Markup:
    return element("line", class_=class_, x1=x1, y1=y1, x2=x2, y2=y2)


def _label(x: float, y: float, words: str, class_: str) -> Markup:
    return element("text", words, x=x, y=y, class_=class_)
