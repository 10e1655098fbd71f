"""How much a search may take: a number of trials, a time, and how long it may go without a better one."""

from __future__ import annotations

import numbers
from typing import Any

from tensorlang.errors import DefinitionError, shown
from tensorlang.location import caller


def check_budget(trials: Any, seconds: Any, early_stopping: Any = None) -> None:
    """Raise DefinitionError for what does not bound a search."""
    if not isinstance(trials, numbers.Integral) or int(trials) < 0:
        raise DefinitionError(f"trials is a number of measurements, got {shown(trials)}", caller())
    if seconds is not None and not (isinstance(seconds, numbers.Real) and float(seconds) >= 0):
        raise DefinitionError(f"seconds is a time or None, got {shown(seconds)}", caller())
    if early_stopping is not None and not (isinstance(early_stopping, numbers.Integral) and int(early_stopping) > 0):
        raise DefinitionError(f"early_stopping is a number of trials or None, got {shown(early_stopping)}", caller())
