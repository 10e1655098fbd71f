"""Kinds of cases that fail, each in its way."""

from __future__ import annotations

import os
import signal
import time

from tensorlang.errors import ArgumentError, InternalError
from tensorlang.testing.soak.case import Outcome, Tell, Wrong


def sometimes_wrong(seed: int, tell: Tell) -> Outcome:
    """Every third seed is wrong, every other one refused."""
    tell(f"program {seed}")
    if seed % 3 == 0:
        raise Wrong(f"C[{seed}] is 1, and should be 2")
    return Outcome.OK if seed % 2 else Outcome.REFUSED


def killed(seed: int, tell: Tell) -> Outcome:
    """Die by a signal, at the first seed."""
    tell("about to be killed")
    if seed == 0:
        os.kill(os.getpid(), signal.SIGSEGV)
    return Outcome.OK


def endless(seed: int, tell: Tell) -> Outcome:
    """Hang at the first seed."""
    tell("about to hang")
    while seed == 0:
        time.sleep(0.01)
    return Outcome.OK


def raising(seed: int, tell: Tell) -> Outcome:
    """One of several errors."""
    errors = (InternalError("x"), ValueError("of somebody else"), MemoryError(), ArgumentError("of the user"))
    raise errors[seed]
