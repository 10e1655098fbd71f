"""What attention of few queries and of many has in common: from scores to weights, inside a loop of what reads them."""

from __future__ import annotations

from collections.abc import Mapping

from tensorlang.schedule import Schedule
from tensorlang.schedules.cpu.rows import reduce_in_lanes
from tensorlang.te.tags import (
    CODES,
    GREATEST,
    INVERSE,
    LARGEST,
    LARGEST_SHARE,
    SCALED,
    SHARE_CODES,
    SHARES,
    TOTAL,
    WEIGHT,
)

EACH = 4
"""Heads per thread with which it does not matter that some thread gets one more."""
CHAINS = 8
"""Independent sums that keep the multiply-add units busy."""


def weigh_inside(s: Schedule, part: Mapping[str, str], host: str, loop: str, lanes: int) -> None:
    """Compute the parts of a softmax over scores inside a loop of a stage, for its queries, a vector at a time."""
    for word in (INVERSE, TOTAL, SHARE_CODES, LARGEST_SHARE, SHARES, WEIGHT, GREATEST, SCALED, CODES, LARGEST):
        if word in part:
            s[part[word]].compute_at(s[host], loop)
            s[part[word]].set_scope("local")
    for word in (w for w in (TOTAL, GREATEST, LARGEST_SHARE, LARGEST) if w in part):
        for step in reduce_in_lanes(s, part[word], lanes):
            s[step].compute_at(s[part[word]], s[part[word]].op.axis[-1])
            s[step].set_scope("local")
    for word in (SHARE_CODES, SHARES, WEIGHT, CODES):
        if word in part:
            s[part[word]].vectorize(s[part[word]].op.axis[-1])
