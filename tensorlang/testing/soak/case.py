"""A case of a soak: a kind and a seed; and what becomes of it."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from types import TracebackType

from tensorlang.dataclass import dataclass
from tensorlang.errors import InternalError, MissingDependency, TensorlangError

Tell = Callable[[str], None]
"""Takes what a case has drawn, as text, before it is run."""
Kind = Callable[[int, Tell], "Outcome"]
"""Draws a case from a seed and runs it. Raises what is wrong; `Wrong` for a wrong result."""

_TESTING = Path(__file__).parent.parent


class Outcome(StrEnum):
    """What became of a case. All but `ok` and `refused` are faults."""

    OK = "ok"
    REFUSED = "refused"
    WRONG = "wrong"
    CRASH = "crash"
    HANG = "hang"
    MEMORY = "memory"
    INTERNAL_ERROR = "internal-error"
    RAW_ERROR = "raw-error"

    @property
    def is_fault(self) -> bool:
        """Whether somebody has to look at it."""
        return self not in (Outcome.OK, Outcome.REFUSED)


class Wrong(AssertionError):
    """A kernel, or a reader of logs, did what it should not have."""


@dataclass(frozen=True, slots=True)
class Case:
    """A kind by its name in the table, or as `module:function`, and the number that everything of it is drawn from."""

    kind: str
    seed: int

    @property
    def command(self) -> str:
        """The command that runs it again."""
        return f"python -m tensorlang.testing soak --kinds {self.kind} --seed {self.seed} --cases 1"


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of a case, and the traceback of what it raised, if it was a fault."""

    outcome: Outcome
    traceback: str = ""


def kind_of(where: str) -> Kind:
    """The function of `module:function`."""
    module, _, name = where.partition(":")
    function: Kind = getattr(import_module(module), name)
    return function


def run_case(kind: Kind, seed: int, tell: Tell) -> Report:
    """Run a case in this process."""
    try:
        return Report(kind(seed, tell))
    except MissingDependency:
        raise
    except Exception as error:
        outcome = judged(error)
        return Report(outcome, "".join(traceback.format_exception(error)) if outcome.is_fault else "")


def judged(error: BaseException) -> Outcome:
    """What an exception of a case is: assertions of the tests mean a wrong result, all others have no business here."""
    match error:
        case InternalError():
            return Outcome.INTERNAL_ERROR
        case TensorlangError():
            return Outcome.REFUSED
        case MemoryError():
            return Outcome.MEMORY
        case Wrong():
            return Outcome.WRONG
        case AssertionError() if error.__cause__ is not None and judged(error.__cause__).is_fault:
            return judged(error.__cause__)
        case AssertionError() if _of_tests(error.__traceback__):
            return Outcome.WRONG
        case _:
            return Outcome.RAW_ERROR


def _of_tests(trace: TracebackType | None) -> bool:
    """Whether an assertion is one about results, and none inside of the compiler."""
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    path = Path(trace.tb_frame.f_code.co_filename)
    return path.is_relative_to(_TESTING) or ("numpy" in path.parts and "testing" in path.parts)
