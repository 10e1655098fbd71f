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
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from typing import Any, Protocol, TypeVar

from tensorlang import config
from tensorlang.config import SettingError
from tensorlang.dataclass import dataclass
from tensorlang.errors import MissingDependency, RecordError, ScheduleError, TensorlangError
from tensorlang.limits import for_a_record
from tensorlang.location import caller
from tensorlang.names import lookup
from tensorlang.runtime.histories import HISTORIES
from tensorlang.schedule.recorded import How, argument_bytes, as_written, reason, replay_recorded
from tensorlang.schedule.schedule import Schedule
from tensorlang.target.spec import Target
from tensorlang.te.operation import ExternOp
from tensorlang.te.program import Program
from tensorlang.words import format_count, format_threads, printable

T = TypeVar("T")
K = TypeVar("K")

_LONGEST = 400  # signs of what is said of one record
_LOGGER = logging.getLogger("tensorlang")
_UNTUNED = "or take rules: tensorlang.build(topi.schedule(outputs), [inputs, outputs])"
_ADVICE = f"""
  tune it:       autotune.tune(autotune.task_of([inputs, outputs]), log='default')
  or use a log:  with autotune.apply_history_best(log):
  {_UNTUNED}"""


@dataclass(frozen=True, slots=True)
class Known:
    """A schedule that was measured: steps as JSON data, the record that they are from, as text, and how they apply."""

    steps: Any
    origin: str
    how: How = as_written


class History(Protocol):
    """Somebody who has records of programs, for a target and its threads."""

    def find(self, s: Schedule, target: Target) -> Iterable[Known]:
        """What is known, the best first, then the next ones, for who cannot use it: a few, or nothing."""

    def missing(self, s: Schedule, target: Target) -> str:
        """Why there is nothing, and what comes nearest."""

    def missed(self, s: Schedule, target: Target) -> None:
        """Told when nobody knew anything, and the program gets a schedule that nobody tuned."""


class RecordSkipped(UserWarning):
    """A tuned record was not used: its schedule is not legal for the program (any more), or it cannot be read."""


_in_use: ContextVar[tuple[History, ...]] = HISTORIES
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


@dataclass(slots=True)
class Attempts:
    """Records of one program, tried in turn until one can be used. `asked` is who wants it, `program` its name.

    A record may be of anybody: whatever using it raises, it is that record's fault, and the next one is tried.
    """

    asked: str
    program: str
    argument_bytes: int = 0
    refused: list[tuple[str, Exception]] = field(default_factory=list)

    def first(self, found: Iterable[K], origin: Callable[[K], str], use: Callable[[K], T]) -> T | None:
        """What `use` makes of the first of the records found that it does not refuse; None when it refuses all.

        Those before it are warned of.
        """
        for record in found:
            try:
                with for_a_record(self.argument_bytes):
                    made = use(record)
            except (MissingDependency, SettingError):
                raise  # whichever record it is
            except Exception as error:
                self.refused.append((printable(origin(record), _LONGEST), error))
                continue
            self.warn()
            say(f"{self.asked}: {self.program} takes {origin(record)}")
            return made
        return None

    def warn(self) -> None:
        """Warn of the records that were refused."""
        for origin, error in self.refused:
            text = f"{self.asked} skips {origin}, whose schedule of {self.program} is refused: {_brief(error)}"
            warn_skipped(text)

    def error(self) -> RecordError:
        """What to raise when none is left."""
        (origin, error), *more = self.refused
        if not more:
            return RecordError(f"{origin}, the best of {self.program}, is refused: {error}")
        lines = "".join(f"\n  {origin}: {_brief(error)}" for origin, error in self.refused)
        tried = format_count(len(self.refused), "record")
        return RecordError(f"{tried} of {self.program}, the best first, were tried, and all are refused:{lines}")


def build_in_use(s: Schedule, target: Target, build: Callable[[Schedule], T]) -> T:
    """Build the best schedule that a history in use has for a program without steps; otherwise `s` itself.

    A record that is refused, or cannot be built, gives way to the next best, with a warning. The histories are told
    of a miss. RecordError when all records are refused.
    """
    if not in_use() or s.trace.steps or _why_untunable(s.original):
        return build(s)
    made, attempts = _built(in_use(), s, target, build)
    if made is not None:
        return made
    if attempts.refused:
        raise attempts.error() from attempts.refused[0][1]
    _tell_missed(s, target)
    return build(s)


def build_best(s: Schedule, target: Target, build: Callable[[Schedule], T]) -> T:
    """Build the best schedule that a history in use or the default store has for a program without steps.

    A record that is refused, or cannot be built, gives way to the next best, with a warning. RecordError when there is
    none, with what comes nearest, or when all are refused.
    """
    why = _why_untunable(s.original)
    if why:
        raise RecordError(f"no tuned record of {_name(s)}: {why}\n  {_UNTUNED}")
    asked: tuple[History, ...] = (*in_use(), lookup(__name__, "STORE"))
    made, attempts = _built(asked, s, target, build)
    if made is not None:
        return made
    if attempts.refused:
        raise attempts.error() from attempts.refused[0][1]
    reasons = "".join(f"\n  {why}" for why in dict.fromkeys(records.missing(s, target) for records in asked))
    machine = f"{target} with {format_threads(target.cores)}"
    raise RecordError(f"no tuned record of {_name(s)} for {machine}{reasons}{_ADVICE}")


def best_if_any(s: Schedule, target: Target, asked: str, attempt: Callable[[Schedule], object]) -> Schedule | None:
    """The schedule that a history in use or the default store has for a program, or None.

    A record that is refused, or that `attempt` cannot use, is skipped, with a warning that names it. `asked` is who
    wants to know.
    """

    def use(known: Known) -> Schedule:
        made = _replayed(s, known)
        attempt(made)
        return made

    if _why_untunable(s.original):
        return None
    attempts = Attempts(asked, _name(s), argument_bytes(s.original))
    for records in (*in_use(), *_store()):
        try:
            made = attempts.first(records.find(s, target), _origin, use)
        except RecordError as error:
            if records in in_use():
                raise  # the user named it
            warn_skipped(f"{asked}: {error}")
            continue
        if made is not None:
            return made
    attempts.warn()
    if not attempts.refused:
        _tell_missed(s, target)
    return None


def say(text: str) -> None:
    """Tell which record is used: at INFO of the logger `tensorlang`, and on standard error for TENSORLANG_LOG=tuner."""
    _LOGGER.info(text)
    if "tuner" in config.get("log"):
        print(f"tensorlang tuner: {text}", file=sys.stderr)


def _built(
    asked: Iterable[History], s: Schedule, target: Target, build: Callable[[Schedule], T]
) -> tuple[T | None, Attempts]:
    """What `build` makes of the first schedule that can be used, and which were tried."""
    attempts = Attempts("build", _name(s), argument_bytes(s.original))
    for records in asked:
        made = attempts.first(records.find(s, target), _origin, lambda known: build(_replayed(s, known)))
        if made is not None:
            return made, attempts
    return None, attempts


def _replayed(s: Schedule, known: Known) -> Schedule:
    made = replay_recorded(copy.copy(s), known.steps, known.how)
    made.origin = known.origin
    return made


def _origin(known: Known) -> str:
    return known.origin


def _brief(error: Exception) -> str:
    """An error in a line; of a refused step what was asked and why, without the search for what else is legal."""
    if not isinstance(error, TensorlangError):
        return reason(error)
    words = [type(error).__name__, error.asked, error.why] if isinstance(error, ScheduleError) else [str(error)]
    return printable(": ".join(filter(None, (text.partition("\n")[0] for text in words))), _LONGEST)


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
    """Warn, once at a place, in one line, of a record or a log that was not used."""
    where, text = caller(), printable(" ".join(text.split()))
    warnings.warn_explicit(text, RecordSkipped, where.file, where.line, registry=_warned)


def _name(s: Schedule) -> str:
    return ", ".join(s.original.outputs)
