"""The picture of an iteration space as SVG: tiles, the order of visits, points, and dependences on top."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensorlang.schedule.picture import Picture, Point

_STEP, _SPAN = 44, 640
"""Pixels from point to point, and those of an axis of many points."""
_MARGIN, _LEGEND = 56, 44
_NUMBERED = 22
"""Pixels between points that have room for numbers."""
_FLOW, _ORDER, _POINT, _TILE = "#c0392b", "#9bb8d3", "#2c6aa0", "#e8a33d"


def svg_of(p: Picture) -> str:
    """The picture as SVG text."""
    return "\n".join(_svg(p, _Grid(p))) + "\n"


class _Grid:
    """Where points are."""

    def __init__(self, p: Picture) -> None:
        rows, columns = sorted({a for a, _ in p.order}), sorted({b for _, b in p.order})
        self.first = (rows[0], columns[0]) if rows else (0, 0)
        self.spans = (rows[-1] - rows[0], columns[-1] - columns[0]) if rows else (0, 0)
        self.step = min(_STEP, max(12, _SPAN // max(1, *self.spans)))
        self.radius = max(3, self.step * 2 // 11)

    @property
    def width(self) -> int:
        return max(2 * _MARGIN + self.step * self.spans[1], 420)

    @property
    def height(self) -> int:
        return 2 * _MARGIN + self.step * self.spans[0]

    def place(self, at: Point) -> Point:
        return _MARGIN + self.step * (at[1] - self.first[1]), _MARGIN + self.step * (at[0] - self.first[0])


def _svg(p: Picture, grid: _Grid) -> Iterator[str]:
    width, height = grid.width, grid.height + _LEGEND
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">'
    )
    yield '<rect width="100%" height="100%" fill="white"/>'
    yield (
        '<defs><marker id="tip" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="6" markerHeight="6" orient="auto">'
        f'<path d="M0 0 L6 3 L0 6 z" fill="{_FLOW}"/></marker></defs>'
    )
    shown = f" ({', '.join(p.cut)})" if p.cut else ""
    yield f'<text x="{_MARGIN}" y="18">{p.statement}: order of visits, and dependences{shown}</text>'
    yield f'<text x="8" y="{_MARGIN + 4}">{p.axes[0]} &#8595;</text>'
    yield f'<text x="{_MARGIN - 4}" y="{_MARGIN - 22}">{p.axes[1]} &#8594;</text>'
    yield from _legend(p, grid.height + 8)
    around = grid.step * 5 // 11
    for low, high in p.tiles:
        (x, y), (u, v) = grid.place(low), grid.place(high)
        yield (
            f'<rect class="tile" x="{x - around}" y="{y - around}" width="{u - x + 2 * around}" '
            f'height="{v - y + 2 * around}" fill="none" stroke="{_TILE}" stroke-width="1.5" rx="4"/>'
        )
    path = " ".join(f"{x},{y}" for x, y in map(grid.place, p.order))
    yield f'<polyline points="{path}" fill="none" stroke="{_ORDER}" stroke-width="2.5" stroke-linejoin="round"/>'
    for at in p.order:
        x, y = grid.place(at)
        yield f'<circle cx="{x}" cy="{y}" r="{grid.radius}" fill="{_POINT}"/>'
    yield from _arrows(p, grid)
    if grid.step >= _NUMBERED:
        for number, at in enumerate(p.order):
            x, y = grid.place(at)
            yield f'<text x="{x}" y="{y + 3}" fill="white" font-size="8" text-anchor="middle">{number}</text>'
    yield "</svg>"


def _arrows(p: Picture, grid: _Grid) -> Iterator[str]:
    there = set(p.order)
    for (a, b), kind in p.arrows:
        for at in p.order:
            to = (at[0] + a, at[1] + b)
            if to in there:
                (x, y), (u, v) = grid.place(at), _before(grid.place(at), grid.place(to), grid.radius)
                yield _arrow(x, y, u, v, kind)


def _arrow(x: int, y: int, u: int, v: int, kind: str) -> str:
    return (
        f'<line x1="{x}" y1="{y}" x2="{u}" y2="{v}" stroke="{_FLOW}" stroke-width="1" '
        f'stroke-dasharray="{"4 3" if kind == "anti" else "none"}" marker-end="url(#tip)"/>'
    )


def _legend(p: Picture, y: int) -> Iterator[str]:
    """What lines mean, for those that are there."""
    x = _MARGIN
    kinds = [kind for kind in ("flow", "anti", "output", "reduction") if any(k == kind for _, k in p.arrows)]
    marks: Sequence[tuple[str, str]] = [
        ("order of visits", f'<path d="M{{x}} {y} h24" stroke="{_ORDER}" stroke-width="2.5"/>'),
        *((f"{kind} dependence", _arrow(0, 0, 0, 0, kind)) for kind in kinds),
        *(
            [("tile", f'<rect x="{{x}}" y="{y - 6}" width="24" height="12" fill="none" stroke="{_TILE}" rx="3"/>')]
            if p.tiles
            else []
        ),
    ]
    for name, mark in marks:
        yield _arrow(x, y, x + 24, y, name.split()[0]) if name.endswith("dependence") else mark.format(x=x)
        yield f'<text x="{x + 30}" y="{y + 4}">{name}</text>'
        x += 44 + 6 * len(name)


def _before(start: Point, end: Point, radius: int) -> Point:
    """Where an arrow ends: at the rim of the circle."""
    length = math.hypot(end[0] - start[0], end[1] - start[1])
    short = (length - radius - 2) / length
    return round(start[0] + short * (end[0] - start[0])), round(start[1] + short * (end[1] - start[1]))
