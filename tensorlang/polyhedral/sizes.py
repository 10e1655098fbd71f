"""For which symbolic sizes a verdict fails, in the user's names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tensorlang.ir.expr import Expr, to_text
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.legality import TimeSpace, Violation

_LONGEST = 120  # what is longer says no more than its smallest case


def failing_sizes(violations: Sequence[Violation]) -> str:
    """`n >= 3`: the sizes for which an order breaks any dependence, as a sentence; empty when there are no sizes.

    Exact, unless an access or a condition depends on data: then it names the sizes for which there is no proof.
    """
    space = violations[0].space
    if not space.scop.sizes or not space.namer.parameters:
        return ""
    text = sizes_text([v.pairs.params() for v in violations], space)
    if text and not _all_visible(space, {v.array for v in violations}):
        return "no proof for any size" if text == "all" else f"no proof when {text}, legal otherwise"
    return failing_text(text, "exactly when")


def failing_text(sizes: str, word: str = "when") -> str:
    """What to say of a set of sizes for which something is wrong."""
    return f"fails {word} {sizes}" if sizes not in ("", "all") else "fails for all sizes" if sizes else ""


def sizes_text(found: Iterable[isl.Set], space: TimeSpace) -> str:
    """The union of some sets of sizes as text; `all` for every size, empty when it has no short form."""
    prefix, context = space.namer.prefix(), space.namer.context()
    known = isl.make_set(f"{prefix}{{ : {context} }}")
    total = isl.make_set(f"{prefix}{{ : 0 = 1 }}")
    for part in found:
        total = total.union(part)
    total = isl.coalesced(total).gist(known).remove_redundancies()
    if known.is_subset(total):
        return "all"
    _, _, body = str(total).partition(": ")
    names = {name: _name(expr) for name, expr in space.namer.parameters.items()}
    text = re.sub(r"\b[a-zA-Z_]\w*\b", lambda found: names.get(found[0], found[0]), body.removesuffix("}").strip())
    return text if len(text) <= _LONGEST else ""


def _name(expr: Expr) -> str:
    text = to_text(expr)
    return text if text.isidentifier() else f"({text})"


def _all_visible(space: TimeSpace, arrays: set[str]) -> bool:
    """Whether isl sees all domains, and every access to some arrays."""
    return all(
        space.is_visible(s) and all(space.is_exact(s, a) for a in (*s.writes, *s.reads) if a.array in arrays)
        for s in space.scop.statements
    )
