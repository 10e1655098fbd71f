"""Whose tuned records are asked for a program, here and in what is called from here: `schedule.history` asks them.

Below all who know what records are, since whether there are any decides what may be kept on disk.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

HISTORIES: ContextVar[tuple[Any, ...]] = ContextVar("tensorlang_history", default=())
"""The innermost first."""
