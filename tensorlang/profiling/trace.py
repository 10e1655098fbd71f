"""Spans of time in the JSON format of Chrome's tracing, which Perfetto reads.

Source: Trace Event Format, Google, 2016.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_MICROSECONDS = 1e6


def document(title: str, events: Sequence[Mapping[str, Any]], threads: Sequence[str] = ()) -> dict[str, Any]:
    """A file of events: of one process, whose threads may have names."""
    named = [_name("process_name", 0, title), *(_name("thread_name", n + 1, text) for n, text in enumerate(threads))]
    return {"traceEvents": [*named, *events], "displayTimeUnit": "ms"}


def span(
    name: str, category: str, begin: float, seconds: float, about: Mapping[str, Any], thread: int = 1
) -> dict[str, Any]:
    """A slice, from so many seconds after the beginning on."""
    place = {"ts": begin * _MICROSECONDS, "dur": seconds * _MICROSECONDS, "pid": 1, "tid": thread}
    return {"name": name, "cat": category, "ph": "X", **place, "args": dict(about)}


def _name(what: str, thread: int, text: str) -> dict[str, Any]:
    place = {"pid": 1, "tid": thread} if thread else {"pid": 1}
    return {"name": what, "ph": "M", **place, "args": {"name": text}}
