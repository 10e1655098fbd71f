"""What a notebook shows of a schedule: its loops as a tree, each with what it may do, and what stages cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tensorlang.markup import Markup, element, page, table
from tensorlang.words import format_bytes

if TYPE_CHECKING:
    from tensorlang.schedule.explain import Explanation, LoopNote, StageNote

ORDER_COLOURS = {"parallel": "#15803d", "reduction": "#b45309", "sequential": "#b91c1c"}
_MOST = 24
"""Dependences that are shown."""


def explanation_html(found: Explanation) -> str:
    """Loops with their trips, footprints and dependences; stages; dependences; forms; warnings."""
    loops = table(("loop", "trips", "runs", "touches", "may run", "carries"), (_loop(note) for note in found.loops))
    stages = table(("stage", "computed", "array", "memory", "reads", "times"), (_stage(note) for note in found.stages))
    shown = found.dependences[:_MOST]
    kinds = [(d.kind, f"{d.source} \u2192 {d.sink}", d.array, f"{d.text()} in ({', '.join(d.axes)})") for d in shown]
    parts: list[Markup] = [loops, stages]
    if kinds:
        parts.append(table(("dependence", "from, to", "through", "distance"), kinds))
    if found.forms:
        parts.append(table(("stage", "form", "because"), ((n.stage, n.form, n.why) for n in found.forms)))
    if found.warnings:
        parts.append(table(("stage", "problem", "step"), ((w.stage, w.problem, w.step) for w in found.warnings)))
    return page(found.title, *parts)


def _loop(note: LoopNote) -> Iterator[str]:
    inset = element("span", f"{note.stage}.{note.axis}", style=f"margin-left:{16 * note.depth}px")
    order = element("span", note.order, style=f"color:{ORDER_COLOURS[note.order]}")
    yield from (inset, note.trips, note.runs, "" if note.bytes is None else format_bytes(note.bytes))
    yield from (order, note.because)


def _stage(note: StageNote) -> Iterator[str]:
    yield from (note.stage, note.place, f"{note.array}[{', '.join(note.shape)}]")
    size = "" if note.bytes is None else f", {format_bytes(note.bytes)}"
    yield f"{note.scope}{size}"
    yield ", ".join(f"{array}: {box}" for array, box in note.reads)
    yield "" if note.recomputed is None else f"{note.recomputed:.3g}"
