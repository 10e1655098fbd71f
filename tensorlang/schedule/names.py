"""Names in error messages: what there is, and what was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str]) -> str:
    """`it has a, b, c; did you mean b?`."""
    names = list(known)
    close = get_close_matches(name, names, n=1)
    listed = ", ".join(names) or "none"
    return f"there are {listed}" + (f"; did you mean {close[0]}?" if close else "")
