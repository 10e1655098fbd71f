"""HTML and SVG by functions: texts are escaped on their way in, so that a page holds no markup of strangers."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from tensorlang.words import printable

_FONT = "font:13px system-ui,sans-serif"
_EMPTY = frozenset({"br", "meta", "line", "circle", "rect", "path"})


class Markup(str):
    """Text that is markup already. Made here alone; all other text is escaped."""

    __slots__ = ()


def element(tag: str, *children: str | float, **attributes: str | float) -> Markup:
    """An element; `class_` is spelled so for Python's sake, and `_` in names of attributes means `-`."""
    words = [tag]
    for name, value in attributes.items():
        shown = f"{value:.6g}" if isinstance(value, float) else str(value)
        words.append(f'{name.rstrip("_").replace("_", "-")}="{html.escape(printable(shown))}"')
    if tag in _EMPTY and not children:
        return Markup(f"<{' '.join(words)}/>" if tag not in {"br", "meta"} else f"<{' '.join(words)}>")
    return Markup(f"<{' '.join(words)}>{joined(children)}</{tag}>")


def joined(children: Iterable[str | float]) -> Markup:
    """Children in order, escaped where they are not markup."""
    return Markup(
        "".join(c if isinstance(c, Markup) else html.escape(printable(str(c)), quote=False) for c in children)
    )


def page(title: str, *parts: str) -> str:
    """What a notebook shows of an object: its title, and parts below; it takes the colours of the page around it."""
    return element("div", element("div", title, style=f"{_FONT};font-weight:600;margin:4px 0"), *parts)


def table(columns: Sequence[str], rows: Iterable[Iterable[str | float]]) -> Markup:
    """A table; cells of numbers are to be texts already."""
    cell = f"{_FONT};text-align:left;padding:2px 10px;vertical-align:top"
    head = element("tr", *(element("th", name, style=cell) for name in columns))
    body = [element("tr", *(element("td", value, style=cell) for value in row)) for row in rows]
    return element("table", *([head] if any(columns) else []), *body, style="border-collapse:collapse;margin:4px 0")


def code(text: str, marked: range = range(0)) -> Markup:
    """A text as it is, some lines of it marked."""
    lines = text.rstrip("\n").split("\n")
    parts = [element("mark", line) if n in marked else line for n, line in enumerate(lines)]
    spaced = [part for line in parts for part in (line, "\n")][:-1]
    return element("pre", *spaced, style="font-size:12px;line-height:1.35;margin:4px 0;overflow-x:auto")


def folded(title: str, *parts: str) -> Markup:
    """Parts that are shown when somebody asks for them."""
    return element("details", element("summary", title, style=f"{_FONT};cursor:pointer"), *parts)
