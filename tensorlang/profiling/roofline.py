"""The roofline of a profile: its parts, by operations a byte and operations a second, below what the machine can do.

Source: Williams, Waterman and Patterson, Roofline, CACM 2009. Bytes are those of different elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, log2

from tensorlang.dataclass import dataclass
from tensorlang.markup import Markup, element
from tensorlang.words import format_seconds

_WIDTH, _HEIGHT, _MARGIN = 520, 260, 46
_COLOURS = ("#2c6aa0", "#15803d", "#b45309", "#7c3aed")
_LETTERS = 18
"""Of the name of a part."""


@dataclass(frozen=True, slots=True)
class Point:
    """A part of a kernel: its operations and bytes, and its seconds."""

    name: str
    operations: float
    bytes: float
    seconds: float

    @property
    def place(self) -> tuple[float, float]:
        """Operations a byte, and 1e9 of them a second."""
        return self.operations / self.bytes, self.operations / self.seconds / 1e9


@dataclass(frozen=True, slots=True)
class _Axes:
    """Both axes are logarithms, from a power of two to another."""

    x: tuple[int, int]
    y: tuple[int, int]

    def at(self, x: float, y: float) -> tuple[float, float]:
        across, up = (log2(v) - low for v, (low, _) in ((x, self.x), (y, self.y)))
        scale_x, scale_y = ((size - 2 * _MARGIN) / (b - a) for size, (a, b) in ((_WIDTH, self.x), (_HEIGHT, self.y)))
        return _MARGIN + across * scale_x, _HEIGHT - _MARGIN - up * scale_y


def roofline_svg(points: Sequence[Point], peak: float, rates: Mapping[str, float]) -> Markup:
    """The parts that compute below the roofs: `peak` in 1e9 operations a second, rates of levels in GB/s."""
    shown = [p for p in points if p.operations > 0 and p.bytes > 0 and p.seconds > 0]
    if not shown:
        return Markup("")
    slow, fast = min(rates.values()), max(rates.values())
    xs, ys = [p.place[0] for p in shown] + [peak / slow, peak / fast], [p.place[1] for p in shown] + [peak]
    axes = _Axes(_powers(xs), _powers(ys))
    drawn = [_line(axes, 2.0 ** axes.x[0], peak, 2.0 ** axes.x[1], peak, "#888")]
    drawn.append(_text(*axes.at(2.0 ** axes.x[1], peak), f"compute {peak:.4g} GFLOP/s", "end"))
    for row, (colour, (level, rate)) in enumerate(zip(_COLOURS, rates.items(), strict=False)):
        first = max(2.0 ** axes.x[0], 2.0 ** axes.y[0] / rate)
        if rate * first < peak:
            drawn.append(_line(axes, first, rate * first, peak / rate, peak, colour))
        below = _HEIGHT - _MARGIN - 14 * (len(rates) - row - 1)
        drawn.append(_text(_WIDTH - _MARGIN, below, f"{level} {rate:.3g} GB/s", "end", colour))
    for p in shown:
        x, y = axes.at(*p.place)
        what = f"{p.name}: {p.place[1]:.4g} GFLOP/s, {p.place[0]:.3g} operations a byte, {format_seconds(p.seconds)}"
        drawn.append(element("circle", element("title", what), cx=x, cy=y, r=5, fill="#b91c1c"))
        name = p.name if len(p.name) <= _LETTERS else f"{p.name[: _LETTERS - 1]}…"
        is_right = x > _WIDTH / 2
        drawn.append(_text(x - 8 if is_right else x + 8, y + 18, name, "end" if is_right else "start"))
    drawn.append(_text(_WIDTH / 2, _HEIGHT - 8, f"operations a byte, 2^{axes.x[0]} to 2^{axes.x[1]}", "middle"))
    drawn.append(_text(4, 14, f"GFLOP/s, 2^{axes.y[0]} to 2^{axes.y[1]}"))
    return element("svg", *drawn, width=_WIDTH, height=_HEIGHT, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img")


def _powers(values: Sequence[float]) -> tuple[int, int]:
    return floor(log2(min(values))) - 1, ceil(log2(max(values))) + 1


def _line(axes: _Axes, x1: float, y1: float, x2: float, y2: float, colour: str) -> Markup:
    (left, top), (right, bottom) = axes.at(x1, y1), axes.at(x2, y2)
    return element("line", x1=left, y1=top, x2=right, y2=bottom, stroke=colour, stroke_width=1.5)


def _text(x: float, y: float, text: str, anchor: str = "start", colour: str = "currentColor") -> Markup:
    return element("text", text, x=x, y=y - 4, font_size=11, text_anchor=anchor, fill=colour, font_family="sans-serif")
