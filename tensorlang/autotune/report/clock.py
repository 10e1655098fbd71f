"""When trials ended, in seconds into their search, from the times of day in records."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import accumulate, groupby

PAUSE = 120.0
"""Seconds between records that mean that nobody was tuning; no build and run takes as long."""


def elapsed_seconds(times: Sequence[str]) -> list[float] | None:
    """Seconds of search until each record; None when one of the times is none.

    Pauses count nothing, and records of the same second share it evenly. Clocks that went back stand still.
    """
    stamps = [_seconds(time) for time in times]
    if not stamps or any(stamp is None for stamp in stamps):
        return None
    found: list[float] = []
    now, before = 0.0, stamps[0]
    for stamp, same in groupby(stamps):
        assert stamp is not None
        assert before is not None
        gap = stamp - before
        now, before = now + (gap if 0 < gap <= PAUSE else 0.0), stamp
        count = len(list(same))
        found += [now + n / count for n in range(count)]
    return list(accumulate(found, max))


def _seconds(time: str) -> float | None:
    try:
        stamp = datetime.fromisoformat(time)
        return stamp.timestamp() if stamp.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
