"""HTML and SVG by functions: texts are escaped on their way in, so that a page holds no markup of strangers."""

from __future__ import annotations

import html
from collections.abc import Iterable

from tensorlang.words import printable

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
