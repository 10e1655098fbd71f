"""`s.explain(as_="html")`: a page of its own, with the loops as a tree that folds, memory over time, and reuse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tensorlang.markup import Markup, element, joined
from tensorlang.schedule.explain_page import ORDER_COLOURS, explanation_html
from tensorlang.words import format_bytes

if TYPE_CHECKING:
    from tensorlang.schedule.explain import Explanation, LoopNote, StageNote

_STYLE = """
body{font:14px system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;color-scheme:light dark}
body{overflow-x:auto}
details,.leaf{margin-left:1.4em;border-left:1px solid #8888;padding:.1em 0 .1em .6em}
summary{cursor:pointer}.note{opacity:.7;margin-left:.8em}h2{font-size:1.1em;margin-top:1.6em}
"""
_ROW, _LEFT, _STEP = 22, 190, 130
"""Pixels of a row of the chart, of the names before it, and of a stage."""


def explanation_document(found: Explanation) -> str:
    """The whole page as text; it loads nothing."""
    parts = [
        element("h1", found.title, style="font-size:1.3em"),
        element("h2", "Loops: trips, bytes touched, and how often a byte is touched again"),
        *_tree(found.loops),
        element("h2", "Memory over time: arrays from the stage that makes them to the last that reads them"),
        _lifetimes(found.stages),
        element("h2", "All of it"),
        Markup(explanation_html(found)),
    ]
    head = joined([element("meta", charset="utf-8"), element("title", found.title), element("style", Markup(_STYLE))])
    width = element("meta", name="viewport", content="width=device-width,initial-scale=1")
    page = element("html", element("head", head, width), element("body", *parts), lang="en")
    return f"<!doctype html>\n{page}\n"


def _tree(loops: Sequence[LoopNote]) -> Iterator[Markup]:
    """Loops with those inside of them, which follow them in order."""
    at = 0
    while at < len(loops):
        end = at + 1
        while end < len(loops) and loops[end].depth > loops[at].depth:
            end += 1
        inner = loops[at + 1 : end]
        line = _line(loops[at], inner)
        yield (
            element("details", element("summary", *line), *_tree(inner), open="")
            if inner
            else element("div", *line, class_="leaf")
        )
        at = end


def _line(note: LoopNote, inner: Sequence[LoopNote]) -> Iterator[Markup]:
    yield element("b", f"{note.stage}.{note.axis}")
    yield element("span", note.order, style=f"color:{ORDER_COLOURS[note.order]};margin-left:.8em", title=note.because)
    touched = "" if note.bytes is None else format_bytes(note.bytes)
    again = reuse(note, inner)
    words = [note.runs, f"{note.trips} times", touched, f"each byte {again:.3g} times" if again else ""]
    yield element("span", " · ".join(word for word in words if word), class_="note")


def reuse(note: LoopNote, inner: Sequence[LoopNote]) -> float | None:
    """How many iterations of a loop touch the same byte, on average; None where the sizes are not known, or no loop is
    inside to tell what an iteration touches.
    """
    sizes = [other.bytes for other in inner if other.depth == note.depth + 1]
    known = [size for size in sizes if size is not None]
    if not known or len(known) < len(sizes) or not note.bytes or not note.trips.isdigit():
        return None
    return int(note.trips) * sum(known) / note.bytes


def _lifetimes(stages: Sequence[StageNote]) -> Markup:
    """A bar for each array, and below them the bytes that are alive while each stage runs."""
    spans = lifetimes(stages)
    width, height = _LEFT + _STEP * len(stages), _ROW * (len(spans) + 2)
    drawn: list[Markup] = [_text(_LEFT + _STEP * n + 4, 0, stage.stage) for n, stage in enumerate(stages)]
    for row, (note, first, last) in enumerate(spans, 1):
        size = "" if note.bytes is None else f" {format_bytes(note.bytes)}"
        drawn.append(_text(0, row, f"{note.array}{size}"))
        box = {"x": _LEFT + _STEP * first, "y": _ROW * row + 3, "width": _STEP * (last - first + 1) - 2, "height": 16}
        drawn.append(element("rect", **box, rx=3, fill="#2c6aa0", opacity=0.75))
    drawn.append(_text(0, len(spans) + 1, "together"))
    for n in range(len(stages)):
        alive = [note.bytes for note, first, last in spans if first <= n <= last]
        known = [size for size in alive if size is not None]
        total = format_bytes(sum(known)) if len(known) == len(alive) else "depends on sizes"
        drawn.append(_text(_LEFT + _STEP * n + 4, len(spans) + 1, total))
    chart = element("svg", *drawn, width=width, height=height, viewBox=f"0 0 {width} {height}", role="img")
    return element("div", chart, style="overflow-x:auto")


def lifetimes(stages: Sequence[StageNote]) -> list[tuple[StageNote, int, int]]:
    """Each array with the first stage that writes it and the last that needs it, by their places; an array that nobody
    reads is a result, and stays.
    """
    found: dict[str, tuple[StageNote, int, int]] = {}
    for n, stage in enumerate(stages):
        note, first, _ = found.get(stage.array, (stage, n, n))
        readers = [m for m, other in enumerate(stages) if m != n and any(a == stage.array for a, _ in other.reads)]
        found[stage.array] = note, first, max([n, *readers]) if readers else len(stages) - 1
    return list(found.values())


def _text(x: int, row: int, text: str) -> Markup:
    return element("text", text, x=x, y=_ROW * row + 15, font_size=12, fill="currentColor")
