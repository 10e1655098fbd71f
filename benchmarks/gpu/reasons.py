"""Failures in one line."""

from __future__ import annotations

_MOST = 300


def brief(problem: BaseException) -> str:
    """An exception in one line."""
    text = " ".join(str(problem).split())
    return f"{type(problem).__name__}: {text if len(text) <= _MOST else text[:_MOST] + '...'}"
