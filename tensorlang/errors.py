"""The error tree. An error is data (fields) that renders to text in one place.

User mistakes and tensorlang's own bugs never share a class: everything below `TensorlangError`
except `InternalError` tells the user what was got, what was wanted and what to do.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tensorlang.dataclass import dataclass
from tensorlang.location import Location


class TensorlangError(RuntimeError):
    """Base of every error that tensorlang raises on purpose; a RuntimeError, as classic te's is."""


class DefinitionError(TensorlangError, ValueError):
    """A tensor program is malformed: rank, dtype, extent, name or reduction. Names the user's line."""

    def __init__(self, message: str, where: Location | None = None) -> None:
        self.message = message
        self.where = where
        super().__init__(f"{message}\n  at {where}" if where else message)


class ValueWanted(DefinitionError, TypeError):
    """An expression stands where Python wants a number, or elements to go over: a TypeError, as Python's own is."""


class TargetError(TensorlangError, ValueError):
    """The target cannot run this: unknown name, missing feature, or a limit (asked / allowed)."""


class ArgumentError(TensorlangError, TypeError, ValueError):
    """A kernel was called with arguments that do not fit its signature. Nothing was run."""


class KernelError(TensorlangError, IndexError):
    """A kernel stopped at run time, for instance on an out-of-range data-dependent index."""


class RecordError(TensorlangError, ValueError):
    """A tuning log, a trace or a record cannot be read, or does not fit this program."""


class MissingDependency(TensorlangError, ImportError):
    """An optional package is needed for what was asked; the message holds the pip command."""


class OneThread(UserWarning):
    """A stage runs on a single thread of a GPU: none of its loops is bound to blocks or threads."""


class UnknownPragma(UserWarning):
    """A pragma that tensorlang does not know is kept in the trace, and changes no code."""


class NoLanes(UserWarning):
    """A loop that holds the computation of another stage is not run in vectors."""


class CacheRefused(UserWarning):
    """The cache of compiled kernels is left alone, as other users can change it; builds go on without it."""


class InternalError(TensorlangError):
    """A bug in tensorlang, not in the user's program."""

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(f"this is a bug in tensorlang, please report it: {message}")


def shown(value: object, most: int = 80) -> str:
    """A value that a user gave, as text for a message: its repr, cut where it gets long."""
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}..."


@dataclass(frozen=True, slots=True)
class Instance:
    """One execution of a statement: `S[1, 2]`, and the time vector at which the schedule runs it."""

    statement: str
    point: tuple[int, ...]
    time: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.statement}[{', '.join(map(str, self.point))}]"


@dataclass(frozen=True, slots=True)
class Witness:
    """The smallest counter-example: two concrete instances that the schedule would get wrong.

    `kind` is flow, anti, output, reduction or coverage; `element` is the array element they share, such as `C[0, 0]`;
    `distance` is sink minus source in the axes that both have; `sizes` holds symbolic sizes, and `sizes_text` says for
    which of them the schedule fails. `source` is None for a read that no instance writes.
    """

    kind: str
    element: str
    source: Instance | None
    sink: Instance
    distance: tuple[int, ...] = ()
    sizes: tuple[tuple[str, int], ...] = ()
    sizes_text: str = ""


class Replayed(NamedTuple):
    """What became of suggestions: lines of Python that were run and proven, and words."""

    legal: tuple[str, ...]
    advice: tuple[str, ...]


def _words(suggested: Sequence[str]) -> Replayed:
    """Without a schedule no line can be tried: what is left are words."""
    return Replayed((), tuple(text for text in suggested if not _is_python(text)))


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


class ScheduleError(TensorlangError, ValueError):
    """A schedule step was refused; the schedule is as it was.

    Six parts: `asked` (what, and `where`), `why`, `witness`, `schedule` (steps so far), `legal` and `advice`: lines of
    Python that do something instead, and words. Who refuses a step gives both as `suggested`, or a search for them,
    which runs when somebody reads it; the schedule that was asked gives `replay`, which runs each line and keeps what
    is legal.
    """

    def __init__(
        self,
        asked: str,
        why: str,
        *,
        where: Location | None = None,
        witness: Witness | None = None,
        schedule: Sequence[str] = (),
        suggested: Sequence[str] | Callable[[], Sequence[str]] = (),
        replay: Callable[[Sequence[str]], Replayed] = _words,
    ) -> None:
        self.asked = asked
        self.why = why
        self.where = where
        self.witness = witness
        self.schedule = tuple(schedule)
        self._suggested = suggested
        self._replay = replay
        self._replayed: Replayed | None = None
        super().__init__(asked, why)

    @property
    def suggested(self) -> tuple[str, ...]:
        """What may be done instead: nobody has tried it."""
        if callable(self._suggested):
            self._suggested = self._suggested()
        return tuple(self._suggested)

    @property
    def legal(self) -> tuple[str, ...]:
        """What could be done instead: lines of Python on the schedule `s`, each of which was run and proven."""
        return self._sorted().legal

    @property
    def advice(self) -> tuple[str, ...]:
        """What could be done instead, in words."""
        return self._sorted().advice

    def _sorted(self) -> Replayed:
        if self._replayed is None:
            self._replayed = self._replay(self.suggested)
        return self._replayed

    def __str__(self) -> str:
        place = f"          {self.where}" if self.where else ""
        lines = [f"{type(self).__name__}: {self.asked}{place}", *(f"  {line}" for line in self.why.splitlines())]
        lines += _render_witness(self.witness)
        if self.schedule:
            lines += ["  schedule", *(f"    {n:>3}  {step}" for n, step in enumerate(self.schedule, 1))]
            lines += [f" -> {len(self.schedule) + 1:>3}  {self.asked}"]
        for word, texts in (("legal", self.legal), ("advice", self.advice)):
            if texts:
                lines += [f"  {word}: {texts[0]}", *(f"  {' ' * len(word)}  {text}" for text in texts[1:])]
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        state = {"where": self.where, "witness": self.witness, "schedule": self.schedule, "_replayed": self._sorted()}
        return type(self), (self.asked, self.why), state


def _render_witness(witness: Witness | None) -> list[str]:
    if witness is None:
        return []
    sizes = ", ".join(f"{name}={value}" for name, value in witness.sizes)
    lines = [f"  smallest case{f' ({sizes})' if sizes else ''}: {witness.kind} through {witness.element}"]
    for role, instance in (("first", witness.source), ("then", witness.sink)):
        if instance is not None:
            time = f"   time {instance.time}" if instance.time else ""
            lines.append(f"    {role:<6} {instance}{time}")
    if witness.distance:
        lines.append(f"    distance {witness.distance}")
    if witness.sizes_text:
        lines.append(f"    {witness.sizes_text}")
    return lines


class BadArgument(ScheduleError):
    """The step's arguments make no sense for this stage: unknown axis, factor below one, not adjacent."""


class IllegalOrder(ScheduleError):
    """The step would run a reader before its writer."""


class IllegalParallel(ScheduleError):
    """The step would let two iterations that share an element run at the same time."""


class UncoveredRead(ScheduleError):
    """The step would leave a read without a producer."""


class OverwrittenValue(ScheduleError):
    """The step would reuse the memory of a value before its last use."""


class TooComplex(ScheduleError):
    """The polyhedral analysis ran out of its operation budget."""
