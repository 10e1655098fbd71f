"""The pictures of a search: its curve over trials and over time, the estimate against the clock, all times."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from tensorlang.autotune.report.charts import (
    HEIGHT,
    WIDTH,
    Axis,
    Place,
    bars,
    chart,
    clock_step,
    diagonal,
    dots,
    level,
    linear,
    logarithmic,
    marked,
    steps,
    whole_step,
)
from tensorlang.autotune.report.figures import Search, Trial
from tensorlang.autotune.report.style import PICTURE_STYLE
from tensorlang.markup import Markup
from tensorlang.words import format_clock, format_count, format_seconds, format_speed

BINS = 40
MARGIN = 10  # of a picture by itself
_COLORS = """
:root { --ink: #1b2430; --soft: #5b6776; --grid: #e4e8ec; --dots: #3a78c3; --best: #c2410c; --level: #0f766e; }
svg { background: #ffffff; }
"""
MARKED = 12
CLOSE_TO_PEAK = 0.2
"""Where the best is slower than this share of the peak, a line at the peak would press the curve flat."""


def draw_trials(search: Search, most: int, title: str = "") -> Markup:
    """The speed of every trial and the best so far, over the trials."""
    along = linear("trials", search.trials, "{:.0f}".format, tight=True, step=whole_step)
    title = title or f"Best so far, over {format_count(search.trials, 'trial')}"
    return _curve(search, title, along, lambda t: t.number, most)


def draw_time(search: Search, most: int) -> Markup | None:
    """The same over time; None when the records do not tell when they were made."""
    if search.elapsed is None:
        return None
    end = max(search.elapsed, 1.0)
    if end > 90:
        along = linear("time of search", end, format_clock, tight=True, step=clock_step)
    else:
        along = linear("time of search", end, "{:g} s".format, tight=True)
    title = f"Best so far, over {format_clock(end)} and {format_count(search.trials, 'trial')}"
    return _curve(search, title, along, lambda t: t.elapsed or 0.0, most)


def _curve(search: Search, title: str, along: Axis, x: Callable[[Trial], float], most: int) -> Markup:
    best = search.improvements()
    top = search.speed(best[-1].seconds)
    limited = search.share is not None and search.share > CLOSE_TO_PEAK
    up = linear(search.unit, max(top, search.peak_gflops) if limited else top, "{:g}".format)
    line = [(x(t), search.speed(t.seconds)) for t in best]
    tips = [
        f"trial {t.number}: {format_seconds(t.seconds)}, {format_speed(search.speed(t.seconds))} {search.unit}"
        for t in best[-MARKED:]
    ]
    marks = [
        *([level(search.peak_gflops, f"measured peak {search.peak_gflops:.0f}")] if limited else []),
        dots([(x(t), search.speed(t.seconds)) for t in search.timed], most),
        steps(line, along.high, most),
        marked(line[-MARKED:], tips),
    ]
    return chart(title, along, up, marks, f"{title}: {format_speed(top)} {search.unit} at the end")


def draw_estimate(search: Search, most: int) -> Markup | None:
    """The estimated against the measured time of every trial; None without estimates."""
    pairs = [(t.estimate, t.seconds) for t in search.timed if t.estimate is not None]
    if not pairs:
        return None
    low, high = min(map(min, pairs)), max(map(max, pairs))
    across = logarithmic("estimated time", low, high, format_seconds)
    up = logarithmic("measured time; dashed: as estimated", low, high, format_seconds)
    marks = [diagonal(across.low, across.high), dots(pairs, most)]
    return chart("Estimated against measured", across, up, marks, f"{len(pairs)} estimates beside their measured times")


def draw_spread(search: Search) -> Markup:
    """How many trials took how long."""
    times = [t.seconds for t in search.timed]
    along = logarithmic("measured time", min(times), max(times), format_seconds)
    width = math.log(along.high / along.low) / BINS
    counts = Counter(min(BINS - 1, int(math.log(time / along.low) / width)) for time in times)
    edges = [along.low * math.exp(width * n) for n in range(BINS + 1)]
    edges[-1] = along.high
    heights = [(edges[n], edges[n + 1], float(count)) for n, count in sorted(counts.items())]
    up = linear("trials", max(counts.values()), "{:.0f}".format, step=whole_step)
    marks: Sequence[Callable[[Place], Markup]] = [bars(heights)]
    return chart("Times of all trials", along, up, marks, f"{len(times)} times, best {format_seconds(min(times))}")


def standalone(picture: Markup) -> str:
    """A picture as an SVG file: with the colors of the light page, on white, and with a margin."""
    size = f"{-MARGIN} {-MARGIN} {WIDTH + 2 * MARGIN} {HEIGHT + 2 * MARGIN}"
    head, tail = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}"', "</svg>"
    inside = picture.partition(">")[2].removesuffix(tail)
    return f"{head}><style>{_COLORS}{PICTURE_STYLE}</style>{inside}{tail}\n"
