"""What every refused step must do: raise the right error, leave the schedule alone, and offer repairs that work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tensorlang import te
from tensorlang.errors import BadArgument, ScheduleError
from tensorlang.schedule import Schedule
from tensorlang.testing.check import check_schedule
from tests.programs import Case

Step = Callable[[Schedule], object]


@dataclass(frozen=True)
class Refusal:
    """A program, legal steps, and one that must be refused.

    `why`: texts that the reason holds. `pair`: the witness's source and sink instances; `element`: what they share;
    `sizes`: the witness's symbolic sizes. `legal`, `advice`: the repairs, as Python and in words, or None when the test
    does not name them all.
    """

    make: Callable[[], Case]
    before: tuple[Step, ...]
    step: Step
    why: tuple[str, ...]
    error: type[ScheduleError] = BadArgument
    pair: tuple[str | None, str] | None = None
    element: str = ""
    sizes: dict[str, int] = field(default_factory=dict)
    legal: tuple[str, ...] | None = None
    advice: tuple[str, ...] | None = None


def refused(case: Refusal) -> ScheduleError:
    """Check a refusal in all its parts, and return the error."""
    s = prepared(case).s
    state, trace = s.state, s.trace
    with pytest.raises(ScheduleError) as caught:
        case.step(s)
    error = caught.value
    assert type(error) is case.error, error
    assert s.state is state and s.trace is trace, "the schedule changed"
    for text in case.why:
        assert text in error.why, error
    assert error.asked.startswith("s"), error
    assert error.where is not None and Path(error.where.file).parent.name == "error", error.where
    assert error.schedule == tuple(trace.to_python().splitlines())
    _check_witness(case, error)
    if case.legal is not None:
        assert error.legal == case.legal
    assert case.advice is None or error.advice == case.advice
    for repair in error.legal:
        _apply(case, repair)
    return error


def prepared(case: Refusal) -> Case:
    """A fresh schedule of the program, up to the refused step."""
    made = case.make()
    for step in case.before:
        step(made.s)
    return made


def _apply(case: Refusal, repair: str) -> None:
    """A repair is accepted in place of the refused step, and keeps the meaning of the program."""
    s, args = prepared(case)
    names: dict[str, Any] = {"s": s, "te": te, "outputs": s.outputs}
    exec(repair, names)
    check_schedule(names["s"], args, {v.name: 5 for v in s.original.sizes}, targets=("interpreter",))


def _check_witness(case: Refusal, error: ScheduleError) -> None:
    if case.pair is None:
        assert error.witness is None
        return
    assert error.witness is not None
    source = error.witness.source
    assert (None if source is None else str(source), str(error.witness.sink)) == case.pair
    assert error.witness.element == case.element
    assert dict(error.witness.sizes) == case.sizes
    if source is not None and source.statement.split(".")[0] != error.witness.sink.statement.split(".")[0]:
        assert error.witness.distance == ()
    elif source is not None:
        steps = zip(source.point, error.witness.sink.point, strict=True)
        assert error.witness.distance == tuple(b - a for a, b in steps)
