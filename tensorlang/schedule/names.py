"""Names in error messages: what there is, and what was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

ABSENT = {
    "annotate": "use pragma",
    "blockize": "tensorize takes the loop itself",
    "get_block": "s[C] is the stage of C",
    "get_loops": "s[C].leaf_iter_vars are the loops of a stage",
    "loop_partition": "use partition, or split(..., tail='peel')",
    "sample_categorical": "use sample_choice",
}


def absent(owner: str, name: str) -> AttributeError:
    """The error for an attribute that TVM's schedules have and tensorlang's lack, or that nobody has."""
    advice = ABSENT.get(name)
    reason = f": TVM has it, tensorlang does not; {advice}" if advice else ""
    return AttributeError(f"{owner} has no {name!r}{reason}")


def nearest(name: str, known: Iterable[str]) -> str:
    """`it has a, b, c; did you mean b?`."""
    names = list(known)
    close = get_close_matches(name, names, n=1)
    listed = ", ".join(names) or "none"
    return f"there are {listed}" + (f"; did you mean {close[0]}?" if close else "")
