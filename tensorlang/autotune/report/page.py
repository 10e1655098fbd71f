"""The report of some logs as one HTML page: no script, nothing from elsewhere, below two megabytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tensorlang.autotune.report.drawings import draw_estimate, draw_spread, draw_time, draw_trials
from tensorlang.autotune.report.figures import Search
from tensorlang.autotune.report.schedules import ShownSchedule
from tensorlang.autotune.report.style import STYLE
from tensorlang.markup import Markup, element, joined
from tensorlang.version import VERSION
from tensorlang.words import (
    format_clock,
    format_count,
    format_seconds,
    format_speed,
    format_threads,
    printable,
)

MOST_SEARCHES = 40
"""Searches that get a part of their own; the table has all, up to MOST_ROWS."""
MOST_ROWS = 1000
MOST_DOTS = 24_000
MOST_TEXT = 600_000
SHORT = 400
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def report_page(
    title: str, searches: Sequence[Search], schedules: Mapping[int, ShownSchedule], skipped: Sequence[str] = ()
) -> str:
    """The page. `schedules`: of searches, by their number; `skipped`: what could not be read of the logs."""
    shown = _largest(searches)
    dots = min(2500, MOST_DOTS // (3 * max(1, len(shown))))
    text = min(40_000, MOST_TEXT // (3 * max(1, len(shown))))
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("title", f"Tuning report: {printable(title, SHORT)}"),
        element("style", Markup(STYLE)),
    )
    trials = sum(s.trials for s in searches)
    summary = f"{printable(title, SHORT)}: {format_count(len(searches), 'program')}, {format_count(trials, 'trial')}"
    parts = [element("h1", "Tuning report"), element("p", summary, class_="soft")]
    parts += [element("p", printable(line, SHORT), class_="warn") for line in skipped]
    if len(searches) != 1:
        parts.append(_overview(searches, shown))
    parts += [_part(n, searches[n], schedules.get(n, ShownSchedule()), dots, text) for n in shown]
    parts.append(element("footer", f"tensorlang {VERSION}. Dots are single trials; the line is the best so far."))
    return f"<!DOCTYPE html>\n{element('html', head, element('body', element('main', *parts)), lang='en')}\n"


def _largest(searches: Sequence[Search]) -> list[int]:
    """The numbers of the searches with most trials, in order."""
    order = sorted(range(len(searches)), key=lambda n: -searches[n].trials)
    return sorted(order[:MOST_SEARCHES])


def _overview(searches: Sequence[Search], shown: Sequence[int]) -> Markup:
    """All searches in a table."""
    head = [("program", ""), ("target", ""), ("threads", "number"), ("trials", "number"), ("failed", "number")]
    head += [(name, "number") for name in ("best", "speed", "of peak")]
    rows = [element("tr", *(element("th", name, class_=kind) for name, kind in head))]
    for n, search in enumerate(searches[:MOST_ROWS]):
        name = printable(search.name, SHORT)
        link = element("a", name, href=f"#search-{n + 1}") if n in shown else name
        cells = [element("td", link), element("td", printable(search.target, SHORT), class_="target")]
        numbers = [str(search.threads), str(search.trials), str(sum(f.count for f in search.failures))]
        if search.best is None:
            numbers += ["–"] * 3
        else:
            speed = search.speed(search.best.median)
            numbers += [format_seconds(search.best.median), f"{format_speed(speed)} {search.unit}", _share(search)]
        rows.append(element("tr", *cells, *(element("td", number, class_="number") for number in numbers)))
    left_out = len(searches) - len(shown)
    more = f"The {len(shown)} searches with most trials are shown below, {left_out} are not." if left_out else ""
    table = element("div", element("table", *rows), class_="scroll")
    return element("section", table, *([element("p", more, class_="soft")] if more else []))


def _part(number: int, search: Search, schedule: ShownSchedule, dots: int, text: int) -> Markup:
    """All about one search."""
    sizes = ", ".join(search.arguments)
    parts = [
        element("h2", printable(search.name, SHORT)),
        element("p", printable(f"{search.target}, {format_threads(search.threads)}; {sizes}", SHORT), class_="soft"),
        element("div", *_tiles(search), class_="tiles"),
    ]
    if search.timed:
        curve = draw_time(search, dots) or draw_trials(search, dots)
        drawn = (curve, draw_estimate(search, dots), draw_spread(search))
        parts.append(element("div", *(picture for picture in drawn if picture is not None), class_="charts"))
    else:
        parts.append(element("p", "No candidate was timed.", class_="warn"))
    parts += [*_failures(search), *_schedule(search, schedule, text), *_origin(search, text)]
    return element("section", *parts, id=f"search-{number + 1}")


def _tiles(search: Search) -> list[Markup]:
    """The figures that people look for first."""
    failed = sum(f.count for f in search.failures)
    tiles: list[Markup] = []
    if search.best is not None:
        best = search.best
        spread = (
            f"median of {len(best.seconds)}, {format_seconds(min(best.seconds))} to {format_seconds(max(best.seconds))}"
        )
        speed = f"{format_speed(search.speed(best.median))} {search.unit}"
        tiles += [_tile(format_seconds(best.median), f"best; {spread}"), _tile(speed, "speed of the best")]
        if search.share is not None:
            width = f"width:{min(100.0, 100 * search.share):.0f}%"
            peak = f"of the measured peak, {search.peak_gflops:.0f} GFLOP/s"
            tiles.append(_tile(_share(search), peak, element("i", element("i", style=width))))
    tiles.append(_tile(f"{search.trials:,}", f"trials; {failed or 'none'} failed"))
    if search.elapsed is not None:
        tiles.append(_tile(format_clock(search.elapsed), "time of search, pauses left out"))
    if (accuracy := search.accuracy) is not None:
        words = f"half of {accuracy.trials:,} times differ by less from what was estimated before"
        tiles.append(_tile(f"×{accuracy.factor:.2f}", words))
    return tiles


def _tile(value: str, words: str, *more: Markup) -> Markup:
    number, _, unit = value.partition(" ")
    shown = element("b", number, *([" ", element("small", unit)] if unit else []))
    return element("div", shown, element("span", words), *more, class_="tile")


def _failures(search: Search) -> list[Markup]:
    if not search.failures:
        return []
    rows = [element("tr", element("th", "failure"), element("th", "count"), element("th", "first message"))]
    for failure in search.failures:
        count = element("td", str(failure.count), class_="number")
        rows.append(
            element(
                "tr",
                element("td", failure.status, class_="target"),
                count,
                element("td", failure.message, class_="message"),
            )
        )
    return [element("h3", "What failed"), element("div", element("table", *rows), class_="scroll")]


def _schedule(search: Search, schedule: ShownSchedule, text: int) -> list[Markup]:
    if search.best is None:
        return []
    words = f"{search.best.sketch}; decisions: {search.best.choices_text or 'none'}"
    return [
        element("h3", "Best schedule"),
        element("p", printable(words, SHORT * 2), class_="soft"),
        _foldable("As Python", schedule.python, "", text, unfolded=True),
        *([element("p", printable(schedule.python_error, SHORT), class_="warn")] if schedule.python_error else []),
        _foldable("As loops", schedule.nest, schedule.nest_error, text),
    ]


def _origin(search: Search, text: int) -> list[Markup]:
    """What was tuned, where, and with what."""
    named = [("machine", search.machines), ("versions", search.versions), ("seed", search.seeds)]
    named.append(("sketches", search.sketches))
    rows = [(name, _enumerated(found)) for name, found in named]
    rows += [("measured", " to ".join(dict.fromkeys((search.first, search.last)))), ("program", search.key)]
    terms = joined(joined((element("dt", name), element("dd", printable(words, SHORT * 2)))) for name, words in rows)
    parts = [element("h3", "Where and with what"), element("dl", terms)]
    return [*parts, _foldable("The program", search.program, "", text)] if search.program else parts


def _foldable(title: str, text: str, error: str, longest: int, unfolded: bool = False) -> Markup:
    shown = element("pre", printable(text.rstrip("\n"), longest)) if text else element("p", printable(error, longest))
    return element("details", element("summary", title), shown, **({"open": "open"} if unfolded else {}))


def _enumerated(found: Iterable[tuple[str, int]], most: int = 6) -> str:
    """Words with their counts, where there are several."""
    known = [(words or "unknown", count) for words, count in found]
    if len(known) == 1:
        return known[0][0]
    more = [f"{len(known) - most} more"] if len(known) > most else []
    return "; ".join([*(f"{words} ({count})" for words, count in known[:most]), *more])


def _share(search: Search) -> str:
    return "–" if search.share is None else f"{100 * search.share:.0f}%"
