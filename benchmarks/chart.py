"""A result as a picture: for every workload, the share of the machine's limit that each library reaches."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

from benchmarks.contest import OWN_NAME

WIDTH, LEFT, RIGHT, TOP, ROW = 860, 240, 24, 92, 18
INK, GRID, OWN = "#222222", "#e4e4e4", "#c0392b"
COLORS = ("#4e79a7", "#a0cbe8", "#59a14f", "#8cd17d", "#b6992d", "#f1ce63", "#499894", "#79706e", "#d37295", "#b07aa1")
LARGEST = 1.1
LEGEND_COLUMNS, LEGEND_STEP = 5, 150


def draw(result: dict[str, Any]) -> Iterator[str]:
    """Lines of the SVG."""
    workloads = result["workloads"]
    peers = list(dict.fromkeys(name for w in workloads for name in w["seconds"] if name != OWN_NAME))
    colors = {name: COLORS[i % len(COLORS)] for i, name in enumerate(peers)} | {OWN_NAME: OWN}
    bottom = TOP + ROW * len(workloads)
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 44}" font-family="sans-serif">'
    yield f'<rect width="{WIDTH}" height="{bottom + 44}" fill="white"/>'
    threads = result["threads"]
    yield text(12, 22, f"Share of the machine's limit, {threads} thread{'s' * (threads > 1)}", size=15)
    for i, name in enumerate((OWN_NAME, *peers)):
        x, y = 18 + LEGEND_STEP * (i % LEGEND_COLUMNS), 42 + 18 * (i // LEGEND_COLUMNS)
        yield dot(x, y, colors[name], name)
        yield text(x + 10, y + 4, name)
    for tenth in range(0, 11, 2):
        yield f'<path d="M{at(tenth / 10):.1f} {TOP}V{bottom}" stroke="{GRID}"/>'
        yield text(at(tenth / 10), bottom + 18, f"{tenth / 10:g}", anchor="middle")
    yield text(at(0.5), bottom + 36, "of the time that arithmetic or memory takes at least", anchor="middle")
    for i, workload in enumerate(workloads):
        middle = TOP + ROW * (i + 0.5)
        yield text(LEFT - 12, middle + 4, workload["workload"], anchor="end", size=12)
        yield f'<path d="M{LEFT} {middle}H{WIDTH - RIGHT}" stroke="{GRID}"/>'
        shares = {name: workload["limit_seconds"] / seconds for name, seconds in workload["seconds"].items()}
        for name in (*peers, OWN_NAME):
            if name in shares:
                yield dot(at(shares[name]), middle, colors[name], f"{name}: {shares[name]:.2f}")
    yield "</svg>"


def at(share: float) -> float:
    """Where a share is, from the left; larger ones than fit are put at the edge."""
    return LEFT + (WIDTH - LEFT - RIGHT) * min(share, LARGEST) / LARGEST


def dot(x: float, y: float, color: str, title: str) -> str:
    """A contestant; ours is larger."""
    radius = 6 if color == OWN else 4
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{color}"><title>{escape(title)}</title></circle>'


def text(x: float, y: float, words: str, anchor: str = "start", size: int = 13) -> str:
    """A text as SVG."""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} font-size="{size}" fill="{INK}">{escape(words)}</text>'
