"""A trace: the steps of a schedule as data. It prints as Python and as JSON, replays, and hashes stably."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol, TypeVar

from tensorlang.dataclass import dataclass
from tensorlang.errors import RecordError
from tensorlang.schedule.names import nearest
from tensorlang.schedule.primitive import Primitive, from_json, to_json
from tensorlang.schedule.primitives import SampleChoice


class Replays(Protocol):
    """Something that takes the steps of a trace: a Schedule."""

    def replay(self, trace: Trace, check: str = "every") -> None: ...


_MOST_STEPS = 10_000
S = TypeVar("S", bound=Replays)


@dataclass(frozen=True)
class Trace:
    """The steps of a schedule, first one first."""

    steps: tuple[Primitive, ...] = ()

    def then(self, step: Primitive) -> Trace:
        """The trace with one more step."""
        return Trace((*self.steps, step))

    @cached_property
    def open(self) -> dict[str, tuple[int, ...]]:
        """Candidates of every decision, by name."""
        return {s.name: s.candidates for s in self.steps if isinstance(s, SampleChoice)}

    @cached_property
    def decisions(self) -> dict[str, int]:
        """Value of every decision, by name."""
        return {s.name: int(s.decision) for s in self.steps if isinstance(s, SampleChoice)}

    def with_decisions(self, values: Mapping[str, int]) -> Trace:
        """The same steps with other decisions; RecordError on an unknown name or a value that is no candidate."""
        for name, value in values.items():
            if name not in self.open:
                raise RecordError(f"no decision {name!r}; {nearest(name, self.open)}")
            if value not in self.open[name]:
                raise RecordError(f"decision {name} = {value} is not among {list(self.open[name])}")
        return Trace(tuple(_decided(s, values) for s in self.steps))

    def to_json(self) -> list[dict[str, Any]]:
        """The steps as JSON data."""
        now = self.decisions
        return [_current(to_json(step), now) for step in self.steps]

    @staticmethod
    def from_json(data: Any) -> Trace:
        """Read a trace back; RecordError when it is not one."""
        if not isinstance(data, list) or not all(isinstance(d, Mapping) for d in data):
            raise RecordError(f"a trace is a list of steps, got {type(data).__name__}")
        if len(data) > _MOST_STEPS:
            raise RecordError(f"a trace of {len(data)} steps; at most {_MOST_STEPS} are read")
        return Trace(tuple(from_json(d) for d in data))

    def to_python(self) -> str:
        """The steps as Python statements on a schedule `s`."""
        return "".join(f"{_statement(step)}\n" for step in self.steps)

    @cached_property
    def key(self) -> str:
        """A stable hash of the steps, the same in every process."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:16]

    def apply(self, schedule: S, check: str = "every") -> S:
        """Replay the steps on a fresh schedule of the same program, proving each step (or the `final` state only)."""
        schedule.replay(self, check)
        return schedule


def _decided(step: Primitive, values: Mapping[str, int]) -> Primitive:
    if isinstance(step, SampleChoice) and step.name in values:
        return replace(step, decision=int(values[step.name]))
    return step


def _current(data: Any, decisions: Mapping[str, int]) -> Any:
    """JSON data whose references to decisions show the values of now."""
    match data:
        case {"decision": str(name), "value": int()} if len(data) == 2:
            return {"decision": name, "value": decisions.get(name, data["value"])}
        case dict():
            return {k: _current(v, decisions) for k, v in data.items()}
        case list():
            return [_current(v, decisions) for v in data]
        case _:
            return data


def _statement(step: Primitive) -> str:
    return f"{step.name} = {step.text()}" if isinstance(step, SampleChoice) else step.text()
