"""Names in error messages: what there is, and what was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

ABSENT = {
    "create_group": "schedule the stages one by one",
    "pragma": "use unroll, vectorize or parallel",
    "prefetch": "the CPU prefetches by itself; use cache_read to pack",
    "set_store_predicate": "stores are guarded by the extents; use te.if_then_else in the body",
}


def absent(owner: str, name: str) -> AttributeError:
    """The error for an attribute that classic te has and tensorlang lacks, or that nobody has."""
    advice = ABSENT.get(name)
    reason = f": classic te has it, tensorlang does not; {advice}" if advice else ""
    return AttributeError(f"{owner} has no {name!r}{reason}")


def nearest(name: str, known: Iterable[str]) -> str:
    """`it has a, b, c; did you mean b?`."""
    names = list(known)
    close = get_close_matches(name, names, n=1)
    listed = ", ".join(names) or "none"
    return f"there are {listed}" + (f"; did you mean {close[0]}?" if close else "")
