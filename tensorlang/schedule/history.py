"""Schedules that are known to be fast: whoever has records of measurements answers for programs that have no steps yet.

The tuner is above this floor, `build` and `topi.schedule` between: they meet here. What is asked, in this order, are
the histories in use, innermost first, and the default store, which is imported only where one exists. An answer is
a trace, and is proven again.
"""

from __future__ import annotations

import copy
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from tensorlang import config
from tensorlang.errors import RecordError, ScheduleError
from tensorlang.location import caller
from tensorlang.names import lookup
from tensorlang.schedule.schedule import Schedule
from tensorlang.schedule.trace import Trace
from tensorlang.target.spec import Target
from tensorlang.te.operation import ExternOp
from tensorlang.te.program import Program
from tensorlang.words import format_threads

_LOGGER = logging.getLogger("tensorlang")
_UNTUNED = "or take rules: tensorlang.build(topi.schedule(outputs), [inputs, outputs])"
_ADVICE = f"""
  tune it:       autotune.tune(autotune.task_of([inputs, outputs]), log='default')
  or use a log:  with autotune.apply_history_best(log):
  {_UNTUNED}"""


@dataclass(frozen=True, slots=True)
class Known:
    """A schedule that was measured: its steps as JSON data, and the record that they are from, as text."""

    steps: Any
    origin: str


class History(Protocol):
    """Somebody who has records. They are of exactly the original program of a schedule, a target and its threads."""

    def find(self, s: Schedule, target: Target) -> Known | None:
        """The best that is known; None when there is nothing."""

    def missing(self, s: Schedule, target: Target) -> str:
        """Why there is nothing, and what comes nearest."""

    def missed(self, s: Schedule, target: Target) -> None:
        """Told when nobody knew anything, and the program gets a schedule that nobody tuned."""


class RecordSkipped(UserWarning):
    """A tuned record was not used: its schedule is not legal for the program (any more), or it cannot be read."""


_in_use: ContextVar[tuple[History, ...]] = ContextVar("tensorlang_history", default=())
_warned: dict[Any, Any] = {}


@contextmanager
def history(records: History) -> Iterator[None]:
    """Ask `records` first."""
    token = _in_use.set((records, *_in_use.get()))
    try:
        yield
    finally:
        _in_use.reset(token)


def in_use() -> tuple[History, ...]:
    """The histories in use, innermost first."""
    return _in_use.get()


def best_in_use(s: Schedule, target: Target) -> Schedule:
    """The schedule that a history in use has for a program without steps; otherwise `s` itself.

    The histories are told of a miss. ScheduleError or RecordError when the record is refused.
    """
    if not in_use() or s.trace.steps or _why_untunable(s.original):
        return s
    for records in in_use():
        known = records.find(s, target)
        if known is not None:
            return _replayed(s, known, "build")
    _tell_missed(s, target)
    return s


def best_if_any(s: Schedule, target: Target, asked: str) -> Schedule | None:
    """The schedule that a history in use or the default store has for a program, or None.

    A record that is refused is skipped, with a warning that names it. `asked` is who wants to know.
    """
    refused = False
    if _why_untunable(s.original):
        return None
    for records in (*in_use(), *_store()):
        try:
            known = records.find(s, target)
        except RecordError as error:
            if records in in_use():
                raise  # the user named it
            warn_skipped(f"{asked}: {error}")
            continue
        if known is None:
            continue
        try:
            return _replayed(s, known, asked)
        except (ScheduleError, RecordError) as error:
            refused = True
            warn_skipped(f"{asked} skips {known.origin}, whose schedule of {_name(s)} is refused: {error}")
    if not refused:
        _tell_missed(s, target)
    return None


def best(s: Schedule, target: Target) -> Schedule:
    """The schedule that a history in use or the default store has for a program without steps.

    RecordError when there is none, with what comes nearest, or when it is refused.
    """
    why = _why_untunable(s.original)
    if why:
        raise RecordError(f"no tuned record of {_name(s)}: {why}\n  {_UNTUNED}")
    asked: tuple[History, ...] = (*in_use(), lookup(__name__, "STORE"))
    for records in asked:
        known = records.find(s, target)
        if known is not None:
            try:
                return _replayed(s, known, "build")
            except (ScheduleError, RecordError) as error:
                raise RecordError(f"{known.origin}, the best of {_name(s)}, is refused: {error}") from error
    reasons = "".join(f"\n  {why}" for why in dict.fromkeys(records.missing(s, target) for records in asked))
    machine = f"{target} with {format_threads(target.cores)}"
    raise RecordError(f"no tuned record of {_name(s)} for {machine}{reasons}{_ADVICE}")


def say(text: str) -> None:
    """Tell which record is used: at INFO of the logger `tensorlang`, and on standard error for TENSORLANG_LOG=tuner."""
    _LOGGER.info(text)
    if "tuner" in config.get("log"):
        print(f"tensorlang tuner: {text}", file=sys.stderr)


def _replayed(s: Schedule, known: Known, asked: str) -> Schedule:
    made = Trace.from_json(known.steps).apply(copy.copy(s), check="final")
    made.origin = known.origin
    say(f"{asked}: {_name(s)} takes {known.origin}")
    return made


def _why_untunable(program: Program) -> str:
    """Why nobody has records of a program; empty when somebody may."""
    if program.sizes:
        sizes = ", ".join(v.name for v in program.sizes)
        return f"it has symbolic sizes ({sizes}), and tuning measures; give them numbers"
    extern = next((op.name for op in program.ops if isinstance(op, ExternOp)), "")
    return f"{extern} calls Python, which has no schedule to tune" if extern else ""


def _store() -> tuple[History, ...]:
    """The default store, if it has a log."""
    try:
        with os.scandir(config.get("store")) as entries:
            exists = any(entry.name.endswith(".jsonl") for entry in entries)
    except OSError:
        exists = False
    return (lookup(__name__, "STORE"),) if exists else ()


def _tell_missed(s: Schedule, target: Target) -> None:
    for records in in_use()[:1]:
        records.missed(s, target)


def warn_skipped(text: str) -> None:
    """Warn, once at a place, of a record or a log that was not used."""
    where = caller()
    warnings.warn_explicit(text, RecordSkipped, where.file, where.line, registry=_warned)


def _name(s: Schedule) -> str:
    return ", ".join(s.original.outputs)
