"""Search spaces: rules that make sketches of a program, one file each.

Every group of stages (a reduction with what follows it, a chain over rows, an elementwise stage, ordered statements)
gets the forms of the first rule that knows it. A sketch takes one form of each group: those of one group are varied
while the others keep their first, and the decisions of all groups are open in every sketch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tensorlang.autotune.search.sketch import Constraint, Sketch
from tensorlang.autotune.space.draft import Draft
from tensorlang.autotune.space.elementwise import elementwise_forms
from tensorlang.autotune.space.few_results import lane_forms
from tensorlang.autotune.space.opened import device_limits, opened
from tensorlang.autotune.space.ordered import ordered_forms
from tensorlang.autotune.space.reuse import reuse_forms
from tensorlang.autotune.space.room import Form, Room, prefix_of, sketch_of
from tensorlang.autotune.space.rows import row_forms
from tensorlang.autotune.space.seeds import seed_sketches
from tensorlang.autotune.space.structure import groups_of, ordered_stages
from tensorlang.autotune.task import Task
from tensorlang.errors import ScheduleError

__all__ = ["sketch_of", "sketches_of"]

RULES = (row_forms, reuse_forms, lane_forms, elementwise_forms)
"""In the order in which they are asked; the first that has forms for a group decides."""


@dataclass(frozen=True, slots=True)
class _Unit:
    """What takes one form: a group of stages, or a stage of ordered statements, by the name of its main stage."""

    name: str
    forms: tuple[Form, ...]


def sketches_of(task: Task) -> list[Sketch]:
    """The search space of a task: sketches by the rules, and the library's own schedule, opened, last.

    ScheduleError when no rule makes a legal schedule.
    """
    units = _units(task)
    found: list[Sketch] = []
    refused: ScheduleError | None = None
    for forms in _combinations(units):
        try:
            found.append(_sketch(task, units, forms))
        except ScheduleError as error:
            refused = error
    found += seed_sketches(task)
    if not found and refused is not None:
        raise refused
    return found


def _units(task: Task) -> tuple[_Unit, ...]:
    units = [_Unit(op.name, tuple(ordered_forms(op))) for op in ordered_stages(task)]
    for group in groups_of(task):
        forms = next((found for rule in RULES if (found := rule(task, group))), [])
        units.append(_Unit(group.main.name, tuple(forms)))
    order = {op.name: n for n, op in enumerate(task.program.ops)}
    return tuple(sorted(units, key=lambda unit: order[unit.name]))


def _combinations(units: Sequence[_Unit]) -> Iterator[tuple[Form, ...]]:
    """The first forms of all units, and then every other form of each unit."""
    firsts = tuple(unit.forms[0] for unit in units)
    yield firsts
    for place, unit in enumerate(units):
        for form in unit.forms[1:]:
            yield (*firsts[:place], form, *firsts[place + 1 :])


def _sketch(task: Task, units: Sequence[_Unit], forms: Sequence[Form]) -> Sketch:
    draft = Draft.of(task.outputs)
    constraints: list[Constraint] = []
    several = len(units) > 1
    for unit, form in reversed([*zip(units, forms, strict=True)]):  # consumers first: they take their producers in
        room = Room(draft, task, unit.name, prefix_of(unit.name) if several else "")
        form.apply(room)
        constraints += room.constraints
    name = "+".join(form.name for form in forms)
    if any(form.opens for form in forms):
        draft, start = opened(task, draft.prove().trace)
        constraints += device_limits(task, draft.scheduled, start)
    return sketch_of(name, draft, constraints)
