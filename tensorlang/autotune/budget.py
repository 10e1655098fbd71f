"""How much a search may take (trials, time, how long it may go without a better one), and the seed it starts from."""

from __future__ import annotations

import numbers
from typing import Any

from tensorlang.errors import DefinitionError, shown
from tensorlang.location import caller

LARGEST_SEED = 2**63 - 1  # that XGBoost takes


def check_budget(trials: Any, seconds: Any, early_stopping: Any = None) -> None:
    """Raise DefinitionError for what does not bound a search."""
    if not isinstance(trials, numbers.Integral) or int(trials) < 0:
        raise DefinitionError(f"trials is a number of measurements, got {shown(trials)}", caller())
    if seconds is not None and not (isinstance(seconds, numbers.Real) and float(seconds) >= 0):
        raise DefinitionError(f"seconds is a time or None, got {shown(seconds)}", caller())
    if early_stopping is not None and not (isinstance(early_stopping, numbers.Integral) and int(early_stopping) > 0):
        raise DefinitionError(f"early_stopping is a number of trials or None, got {shown(early_stopping)}", caller())


def checked_seed(seed: Any) -> int:
    """The seed of a search; DefinitionError for what a record could not hold, or who draws could not take."""
    if isinstance(seed, numbers.Integral) and 0 <= int(seed) <= LARGEST_SEED:
        return int(seed)
    raise DefinitionError(f"seed is a whole number from 0 to {LARGEST_SEED}, got {shown(seed)}", caller())
