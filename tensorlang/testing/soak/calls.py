"""Hostile calls of kernels (`tensorlang.testing.calls`)."""

from __future__ import annotations

from tensorlang.testing.calls import call_of, run_call
from tensorlang.testing.soak.case import Outcome, Tell


def run(seed: int, tell: Tell) -> Outcome:
    """Draw a call and run it on both roads."""
    call = call_of(seed)
    tell(str(call))
    return Outcome.OK if run_call(call) == "ran" else Outcome.REFUSED
