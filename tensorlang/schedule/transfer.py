"""The steps of a schedule on a program of other names, done on both side by side: each name is known by its place.

Steps make names from names (`i_o`, `C.local`), with numbers where one is taken: no rule of spelling carries them over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from operator import is_
from typing import Any

from tensorlang.errors import RecordError
from tensorlang.schedule.primitive import Outputs, Primitive
from tensorlang.schedule.primitives import Strict
from tensorlang.schedule.schedule import Schedule
from tensorlang.schedule.state import ScheduleState, initial_state
from tensorlang.schedule.trace import Trace
from tensorlang.te.operation import HybridOp, Operation, buffers
from tensorlang.te.program import Program, local_arrays

ROLES = {
    **dict.fromkeys(("stage", "parent", "second", "readers"), "stage"),
    **dict.fromkeys(("tensor", "array"), "array"),
    **dict.fromkeys(("axis", "other", "axes", "by", "along", "shared", "after", "statement", "rows", "terms"), "loop"),
    "predicate": "condition",
}
"""What a field of a primitive names, by the field's own name; others name nothing of a program."""
NAMED = ("str", "StageName", "Arguments", "tuple[str, ...]")
"""Types of fields that name things: an Identifier or a text of indices has names of its own."""
_NAME = re.compile(r"[A-Za-z_][\w.]*")


class Transfer:
    """A record's program under the record's names, and a schedule of ours that follows its steps.

    `stages` are its operations and ours, by name.
    """

    def __init__(self, recorded: Program, ours: Schedule, stages: Mapping[str, str]) -> None:
        self.state, self.ours, self.stages = initial_state(recorded), ours, dict(stages)
        self._loops: dict[str, dict[str, str]] = {}
        self._seen: dict[str, tuple[object, ...]] = {}
        self._look_again()

    def run_all(self, trace: Trace) -> None:
        """Do all steps on both."""
        for step in trace.steps:
            self.run(step)

    def run(self, step: Primitive) -> None:
        """Do a step on both; ScheduleError where it cannot be done on ours."""
        made: Outputs = ()
        translated, before = self.renamed(step), self.ours.program
        if not (isinstance(step, Strict) and self.ours.state.strict):
            made = self.ours.advance(translated, check=False)
        self.only_recorded(step)
        self.pair(_made_anew(before, self.ours.program, made))

    def only_recorded(self, step: Primitive) -> None:
        """Do a step on the record's program alone."""
        before = self.state.program
        self.state, made = step.apply(self.state)
        for name in _made_anew(before, self.state.program, made):
            self.stages.pop(name, None)

    def pair(self, made: Sequence[str], instead: Mapping[str, str] | None = None) -> None:
        """Let the stages that a step has made there stand for those made here; `instead`: others that have moved."""
        there = self.state.program.by_name
        self.stages = {name: own for name, own in self.stages.items() if name in there} | dict(instead or {})
        new = [name for name in there if name not in self.stages]
        if len(new) != len(made):
            raise RecordError(f"a step made the stages {', '.join(new)} for the record, and {', '.join(made)} here")
        self.stages |= zip(new, made, strict=True)
        self._look_again()

    def _look_again(self) -> None:
        """Pair the axes and statements of all stages that have changed."""
        for name, stage in self.state.stages.items():
            own = self.stages[name]
            now = (own, stage, self.state.program[name])
            if name in self._seen and all(map(is_, self._seen[name], now)):
                continue
            self._seen[name] = now
            theirs, ours = _loops(self.state, name), _loops(self.ours.state, own)
            if len(theirs) != len(ours):
                raise RecordError(f"{name} has the loops {', '.join(theirs)} in the record, {own} {', '.join(ours)}")
            self._loops[name] = dict(zip(theirs, ours, strict=True))

    def renamed(self, step: Primitive) -> Primitive:
        """A step in names of ours."""
        changed: dict[str, Any] = {}
        for field in fields(step):  # type: ignore[arg-type]
            if field.name in ROLES and field.type in NAMED:
                names, value = self._names(step, field.name), getattr(step, field.name)
                changed[field.name] = tuple(map(names, value)) if isinstance(value, tuple) else names(value)
        return replace(step, **changed)  # type: ignore[type-var]

    def _names(self, step: Primitive, field: str) -> Callable[[str], str]:
        """How names in a field of a step are spelt here; what is unknown stays, and is refused as an unknown name."""
        stage = getattr(step, _OWNERS.get(field, "stage"), "") or getattr(step, "stage", "")
        loops = self._loops.get(stage, {})
        match ROLES[field]:
            case "stage":
                return lambda name: self.stages.get(name, name)
            case "array":
                return lambda name: self._arrays().get(name, name)
            case "condition":
                return lambda text: _NAME.sub(lambda m: loops.get(m[0]) or self._of_stage(m[0]), text)
        return lambda name: loops.get(name, name)

    def _of_stage(self, name: str) -> str:
        """A loop of a stage, as conditions spell it: `C.i_o`."""
        stage, _, loop = name.rpartition(".")
        known = stage in self._loops and loop in self._loops[stage]
        return f"{self.stages[stage]}.{self._loops[stage][loop]}" if known else name

    def _arrays(self) -> dict[str, str]:
        """Arrays of the record's program and ours, by name."""
        pairs = ((self.state.program[name], self.ours.program[own]) for name, own in self.stages.items())
        found = (zip(_arrays_of(theirs), _arrays_of(ours), strict=False) for theirs, ours in pairs)
        return {theirs: ours for each in found for theirs, ours in each}


_OWNERS = {"axis": "parent", "other": "second"}
"""Fields that name loops -> the field with their stage, where a step has one that is not empty; else it is `stage`."""


def _made_anew(before: Program, now: Program, made: Outputs) -> list[str]:
    """The operations that a step has made, those among them that bear the name of one that is gone."""
    old = before.by_name
    return [name for name, op in now.by_name.items() if name not in old or (name in made and op is not old[name])]


def _loops(state: ScheduleState, stage: str) -> list[str]:
    """The axes of a stage, and its statements."""
    return [*state.axis_ranges(stage), *state.stages[stage].strands]


def _arrays_of(op: Operation) -> list[str]:
    return [b.name for b in (*buffers(op), *(local_arrays(op) if isinstance(op, HybridOp) else ()))]
