"""Search spaces: rules that make sketches of a program, one file each; those for GPUs are in `space.gpu`.

Every group of stages (a reduction with what follows it, a chain over rows, an elementwise stage, ordered statements)
gets the forms of the first rule that knows it. A sketch takes one form of each group: those of one group are varied
while the others keep their first, and the decisions of all groups are open in every sketch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tensorlang.autotune.search.sketch import Sketch
from tensorlang.autotune.space.draft import Draft, sketch_of
from tensorlang.autotune.space.seeds import library_sketch
from tensorlang.autotune.task import Task, count_operations
from tensorlang.dataclass import dataclass
from tensorlang.errors import ScheduleError
from tensorlang.schedules.forms import forms_of, ordered_forms_of
from tensorlang.schedules.prepare import WINDOWS, prepare
from tensorlang.schedules.recognise import groups_of, ordered_stages, stages_of
from tensorlang.schedules.room import Constraint, Form, Room, prefix_of

__all__ = ["each_sketch", "library_sketch", "require_iterations", "sketch_of", "sketches_of"]

MOST_OTHERS = 24  # of programs of several units: each is a schedule of the whole program, which takes its time to prove


@dataclass(frozen=True, slots=True)
class _Unit:
    """What takes one form: a group of stages, or a stage of ordered statements, by the name of its main stage."""

    name: str
    forms: tuple[Form, ...]


def sketches_of(task: Task) -> list[Sketch]:
    """The search space of a task: sketches by the rules, and the library's own schedule, its sizes open, last.

    ScheduleError when no rule makes a legal schedule, or there is nothing to compute.
    """
    require_iterations(task)
    return list(each_sketch(task, library_sketch(task)))


def each_sketch(task: Task, library: Sketch | None) -> Iterator[Sketch]:
    """The same, one after the other. On a CPU a library without open sizes adds nothing."""
    units = _units(task)
    refused: ScheduleError | None = None
    own = library is not None and (library.knobs or task.target.can.device)
    found = [library] if library is not None and own else []
    none = not found
    for forms in _combinations(units):
        try:
            sketch = _sketch(task, units, forms)
            if not found or sketch.trace.key != found[0].trace.key:
                yield sketch
            none = False
        except ScheduleError as error:
            refused = error
    if none and refused is not None:
        raise refused
    yield from found


def require_iterations(task: Task) -> None:
    """Raise ScheduleError for loops of no iterations: no schedule is better than another."""
    empty = [stage.name for stage in stages_of(task.program) if not stage.points]
    if empty or not count_operations(task.program):
        raise ScheduleError(
            "autotune",
            f"{', '.join(empty) or task.workload} has no iterations: there is nothing to tune",
            suggested=["give it extents of at least 1"],
        )


def _units(task: Task) -> tuple[_Unit, ...]:
    program = _prepared(task).program
    units = [_Unit(op.name, ordered_forms_of(task.target, op)) for op in ordered_stages(program)]
    on_cpu = not task.target.can.device
    for group in groups_of(program, words=on_cpu, transforms=on_cpu):
        units.append(_Unit(group.main.name, forms_of(task.target, group)))
    order = {op.name: n for n, op in enumerate(program.ops)}
    return tuple(sorted(units, key=lambda unit: order[unit.name]))


def _prepared(task: Task) -> Draft:
    """The program as the rules take it, by what the target has instructions for."""
    draft = Draft.of(task.outputs)
    prepare(draft, task.target, WINDOWS)
    return draft


def _combinations(units: Sequence[_Unit]) -> Iterator[tuple[Form, ...]]:
    """The first forms of all units, and then other forms of each unit: all of a single one, few of many."""
    firsts = tuple(unit.forms[0] for unit in units)
    yield firsts
    others = sorted(
        ((turn, place, form) for place, unit in enumerate(units) for turn, form in enumerate(unit.forms[1:])),
        key=lambda other: other[:2],
    )
    for _, place, form in others if len(units) == 1 else others[:MOST_OTHERS]:
        yield (*firsts[:place], form, *firsts[place + 1 :])


def _sketch(task: Task, units: Sequence[_Unit], forms: Sequence[Form]) -> Sketch:
    draft = _prepared(task)
    constraints: list[Constraint] = []
    several = len(units) > 1
    for unit, form in reversed([*zip(units, forms, strict=True)]):  # consumers first: they take their producers in
        room = Room(draft, task.target, unit.name, prefix_of(unit.name) if several else "")
        form.apply(room)
        constraints += room.constraints
    name = "+".join(form.name for form in forms)
    return sketch_of(name, draft, constraints)
