"""Draw a tuning log: the speed of every trial, and the best so far, as an SVG picture.

python docs/draw_tuning.py matmul.jsonl docs/images/tuning.svg
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

import click

from tensorlang.autotune import TuningRecord, read_log
from tensorlang.target import measure_peak

WIDTH, HEIGHT = 760, 390
LEFT, RIGHT, TOP, BOTTOM = 64, 20, 58, 48
INK, GRID, DOTS, BEST, PEAK = "#222222", "#e4e4e4", "#8fb3d9", "#c0392b", "#555555"


@click.command()
@click.argument("log", type=click.Path(exists=True, dir_okay=False))
@click.argument("picture", type=click.Path(path_type=Path))
@click.option("--peak", type=float, help="Peak of the machine in GFLOP/s (default: measured now).")
def main(log: str, picture: Path, peak: float | None) -> None:
    """Draw LOG, which holds records of one workload, as PICTURE (SVG)."""
    records = read_log(log).records
    if len({str(r.workload) for r in records}) != 1:
        raise click.UsageError(f"{log} must hold records of one workload")
    limit = peak or measure_peak(records[0].threads)["gflops"]
    picture.write_text("\n".join(draw(records, limit)) + "\n", encoding="utf-8")


def draw(records: Sequence[TuningRecord], peak: float) -> Iterator[str]:
    """Lines of the picture."""
    speeds = [r.gflops if r.ok else None for r in records]
    step = nice_step(peak)
    top = step * math.ceil(peak / step)

    def x(trial: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * trial / len(records)

    def y(speed: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * speed / top

    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">'
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    threads = f"{records[0].threads} thread{'s' * (records[0].threads > 1)}"
    yield text(LEFT, 22, f"{records[0].workload}, {threads}: every trial, and the best so far", size=15)
    for n in range(math.floor(top / step) + 1):
        yield line(LEFT, y(n * step), WIDTH - RIGHT, y(n * step), GRID)
        yield text(LEFT - 8, y(n * step) + 4, f"{n * step:g}", anchor="end")
    trials = nice_step(len(records))
    for trial in range(0, len(records) + 1, int(max(1, trials))):
        yield text(x(trial), HEIGHT - BOTTOM + 20, str(trial), anchor="middle")
    yield text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "trials", anchor="middle")
    yield text(LEFT - 8, TOP - 14, "GFLOP/s", anchor="end")
    yield line(LEFT, y(peak), WIDTH - RIGHT, y(peak), PEAK, "6 4")
    yield text(WIDTH - RIGHT, y(peak) - 5, f"measured peak {peak:.0f}", anchor="end")
    for trial, speed in enumerate(speeds, 1):
        if speed is not None:
            yield f'<circle cx="{x(trial):.1f}" cy="{y(speed):.1f}" r="3" fill="{DOTS}"/>'
    best = list(accumulate((speed or 0.0 for speed in speeds), max))
    path = "".join(f"H{x(trial):.1f}V{y(speed):.1f}" for trial, speed in enumerate(best, 1))
    yield f'<path d="M{x(1):.1f} {y(best[0]):.1f}{path}" fill="none" stroke="{BEST}" stroke-width="2"/>'
    yield "</svg>"


def nice_step(limit: float) -> float:
    """A round distance of ticks, for four to eight of them up to `limit`."""
    scale = 10.0 ** math.floor(math.log10(limit / 4))
    return max(scale * m for m in (1, 2, 2.5, 5) if scale * m <= limit / 4)


def line(x1: float, y1: float, x2: float, y2: float, color: str, dashes: str = "none") -> str:
    """A line as SVG."""
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{color}" stroke-dasharray="{dashes}"/>'


def text(x: float, y: float, words: str, anchor: str = "start", size: int = 13) -> str:
    """A text as SVG."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{INK}">{words}</text>'


if __name__ == "__main__":
    main()
