"""A result of the tuner as a picture: the best so far against the time and the trials, a row for every workload."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.chart import COLORS, GRID, OWN, text

WIDTH, LEFT, GAP, TOP, ROW, HEIGHT = 860, 60, 60, 70, 190, 130
PANEL = (WIDTH - LEFT - GAP - 20) // 2
LOWEST = 0.0
"""Share of the best speed known at the foot of a panel."""

Point = tuple[float, float]


def draw(result: dict[str, Any]) -> Iterator[str]:
    """Lines of the SVG."""
    workloads = [w for w in result["workloads"] if w["best"] is not None]
    height = TOP + ROW * len(workloads)
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">'
    yield f'<rect width="{WIDTH}" height="{height}" fill="white"/>'
    threads = result["threads"]
    title = f"Speed of the best so far, of the best known, {threads} thread{'s' * (threads > 1)}"
    yield text(12, 22, title, size=15)
    for n, (name, color) in enumerate((("tensorlang", OWN), ("TVM MetaSchedule", COLORS[0]))):
        yield f'<path d="M{LEFT + 170 * n} 42h20" stroke="{color}" stroke-width="2"/>'
        yield text(LEFT + 170 * n + 26, 46, name)
    for n, workload in enumerate(workloads):
        yield from _row(workload, TOP + ROW * n)
    yield "</svg>"


def _row(workload: dict[str, Any], top: float) -> Iterator[str]:
    """Two panels: seconds of wall time, and trials; both logarithmic."""
    yield text(LEFT, top + 10, workload["workload"], size=12)
    best = workload["seconds"][workload["best"]]
    searches = workload["searches"]
    for panel, (unit, place) in enumerate((("seconds", 1), ("trials", 0))):
        left = LEFT + panel * (PANEL + GAP)
        ends = [point[place] for s in searches.values() for point in s["improvements"]]
        if not ends:
            continue
        low, high = max(min(ends), 1e-3), max(*ends, 2 * min(ends))
        yield from _grid(left, top + 20, low, high, unit)
        for (name, search), color in zip(searches.items(), (OWN, COLORS[0]), strict=False):
            points = [(p[place], best / p[2]) for p in search["improvements"]]
            path = " ".join(_stairs(points, left, top + 20, low, high))
            yield f'<path d="{path}" fill="none" stroke="{color}" stroke-width="2"><title>{name}</title></path>'


def _grid(left: float, top: float, low: float, high: float, unit: str) -> Iterator[str]:
    for share in (LOWEST, 0.5, 1.0):
        y = _down(share, top)
        yield f'<path d="M{left} {y:.1f}h{PANEL}" stroke="{GRID}"/>'
        yield text(left - 6, y + 4, f"{share:g}", anchor="end", size=11)
    for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1):
        x = _along(10.0**power, left, low, high)
        yield f'<path d="M{x:.1f} {top}v{HEIGHT}" stroke="{GRID}"/>'
        yield text(x, top + HEIGHT + 14, f"{10**power:g} {unit[: None if power else -1]}", anchor="middle", size=11)


def _stairs(points: Sequence[Point], left: float, top: float, low: float, high: float) -> Iterator[str]:
    """The path of the best so far: level until there is a better one."""
    for n, (when, share) in enumerate(points):
        x, y = _along(when, left, low, high), _down(share, top)
        yield f"M{x:.1f} {y:.1f}" if n == 0 else f"H{x:.1f}V{y:.1f}"


def _along(value: float, left: float, low: float, high: float) -> float:
    return left + PANEL * math.log(max(value, low) / low) / math.log(high / low)


def _down(share: float, top: float) -> float:
    """Shares under the lowest are drawn at the foot; a search may have timed more than the final turns did."""
    return top + HEIGHT * (1.1 - min(max(share, LOWEST), 1.1)) / (1.1 - LOWEST)
