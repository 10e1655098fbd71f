"""The steps of records: data of somebody, who may be anybody.

Whatever uses a record goes through `replay_recorded`. It brings no code along that the program at hand has not allowed,
is proven within bounds, and all that can go wrong is an error of the record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from math import prod
from typing import Any, TypeAlias

from tensorlang import dtypes
from tensorlang.errors import DefinitionError, InternalError, RecordError, ScheduleError, shown
from tensorlang.ir.expr import Buffer, Const
from tensorlang.limits import check_scratch, for_a_record
from tensorlang.schedule.derive import derive
from tensorlang.schedule.primitives import Assume
from tensorlang.schedule.schedule import Schedule
from tensorlang.schedule.trace import Trace
from tensorlang.te.operation import PlaceholderOp, buffers
from tensorlang.te.program import Program
from tensorlang.words import printable

_allowed: ContextVar[tuple[frozenset[str], frozenset[str]]] = ContextVar(
    "tensorlang_allowed", default=(frozenset(), frozenset())
)
_LONGEST = 300  # signs of a reason


@contextmanager
def allow_in_records(code: Sequence[str] = (), assumptions: Sequence[str] = ()) -> Iterator[None]:
    """Let records use what nothing proves, inside a `with` block.

    `code`: texts of LLVM IR that their schedules may import (`import_llvm`); a record with any other is refused.
    `assumptions`: facts about index arrays as records spell them (`injective idx`, `range idx 0 8`); those that are
    not named here are tested on every call of a kernel that relies on them.

        >>> from tensorlang import autotune
        >>> with autotune.allow_in_records(assumptions=["injective idx"]):
        ...     best = autotune.best_record([])
    """
    for name, texts in (("code", code), ("assumptions", assumptions)):
        if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
            raise DefinitionError(f"{name} is a list of texts, got {shown(texts)}")
    known, facts = _allowed.get()
    token = _allowed.set((known | frozenset(code), facts | frozenset(assumptions)))
    try:
        yield
    finally:
        _allowed.reset(token)


How: TypeAlias = Callable[[Schedule, Trace], Schedule]
"""Applies the steps of a record to a schedule without steps, and proves the result."""


def as_written(fresh: Schedule, trace: Trace) -> Schedule:
    """Apply steps by the names that they have."""
    return trace.apply(fresh, check="final")


def replay_recorded(fresh: Schedule, steps: Any, how: How = as_written) -> Schedule:
    """Apply the steps of a record, as JSON data, to a schedule without steps, and prove the result.

    RecordError when they are no steps, bring code, or cannot be replayed; ScheduleError when they are not legal, or ask
    for more time or memory than a record gets.
    """
    try:
        with for_a_record(argument_bytes(fresh.original)):
            trace = Trace.from_json(steps)
            _refuse_code(trace)
            made = how(fresh, trace)
            _check_arrays(made)
    except (InternalError, RecordError, ScheduleError):
        raise
    except Exception as error:
        raise RecordError(f"its steps cannot be replayed: {reason(error)}") from error
    made.tests_assumptions = any(spelt not in _allowed.get()[1] for spelt in map(_spelt, made.trace.steps) if spelt)
    return made


def reason(error: BaseException) -> str:
    """An error in a line that is safe to print."""
    text = (str(error).strip() or "no more is known").partition("\n")[0]
    return f"{type(error).__name__}: {printable(text, _LONGEST)}"


def argument_bytes(program: Program) -> int:
    """The bytes of a program's own arrays; those of symbolic sizes count as none."""
    return sum(_bytes(b) for op in program.ops for b in buffers(op))


def _refuse_code(trace: Trace) -> None:
    for number, step in enumerate(trace.steps, 1):
        code = getattr(step, "code", "")
        if code and code not in _allowed.get()[0]:
            raise RecordError(
                f"step {number} brings code of its own, {shown(code, 40)}, which nothing proves; if it is yours, use "
                "the record inside `with autotune.allow_in_records(code=[TEXT])`"
            )


def _spelt(step: Any) -> str:
    """An assumption as records spell it; empty for any other step."""
    if not isinstance(step, Assume):
        return ""
    words = (step.fact, step.array, step.low, step.high)
    return " ".join(str(word) for word in words if word is not None)


def _check_arrays(made: Schedule) -> None:
    """ScheduleError for an array inside the kernel that is far larger than the program's own."""
    program = made.program
    own = {b.name for op in program.ops if isinstance(op, PlaceholderOp) for b in buffers(op)}
    for name, plan in derive(made.state).plans.items():
        if name not in own and name not in program.outputs:
            check_scratch(name, _bytes(plan.buffer))


def _bytes(buffer: Buffer) -> int:
    sizes = [extent.value for extent in buffer.shape if isinstance(extent, Const)]
    return int(prod(sizes)) * dtypes.info(buffer.dtype).bytes if len(sizes) == len(buffer.shape) else 0
