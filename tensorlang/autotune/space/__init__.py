"""Search spaces: rules that make sketches of a program, one file each; those for GPUs are in `space.gpu`.

Every group of stages (a reduction with what follows it, a chain over rows, an elementwise stage, ordered statements)
gets the forms of the first rule that knows it. A sketch takes one form of each group: those of one group are varied
while the others keep their first, and the decisions of all groups are open in every sketch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tensorlang.autotune.search.sketch import Constraint, Sketch
from tensorlang.autotune.space.dots import dot_forms, sums_lie_apart
from tensorlang.autotune.space.draft import Draft
from tensorlang.autotune.space.elementwise import elementwise_forms
from tensorlang.autotune.space.few_results import lane_forms
from tensorlang.autotune.space.gpu.elements import element_forms
from tensorlang.autotune.space.gpu.ordered import bound_forms
from tensorlang.autotune.space.gpu.rows import block_row_forms
from tensorlang.autotune.space.gpu.sums import sum_forms
from tensorlang.autotune.space.gpu.tensor_cores import tensor_core_forms
from tensorlang.autotune.space.gpu.tiles import tile_forms
from tensorlang.autotune.space.opened import device_limits, opened
from tensorlang.autotune.space.ordered import ordered_forms
from tensorlang.autotune.space.reuse import reuse_forms
from tensorlang.autotune.space.room import Form, Room, prefix_of, sketch_of
from tensorlang.autotune.space.rows import row_forms
from tensorlang.autotune.space.seeds import is_of_library, library_sketch
from tensorlang.autotune.space.structure import Group, groups_of, ordered_stages, stages_of
from tensorlang.autotune.task import Task, count_operations
from tensorlang.errors import ScheduleError

__all__ = ["each_sketch", "library_sketch", "require_iterations", "sketch_of", "sketches_of"]

RULES = (row_forms, reuse_forms, lane_forms, elementwise_forms)
"""In the order in which they are asked; the first that has forms for a group decides."""
GPU_RULES = (block_row_forms, tensor_core_forms, tile_forms, sum_forms, element_forms)
"""Of these all that have forms for a group give them, the first ones first."""
MOST_OTHERS = 24  # of programs of several units: each is a schedule of the whole program, which takes its time to prove


@dataclass(frozen=True, slots=True)
class _Unit:
    """What takes one form: a group of stages, or a stage of ordered statements, by the name of its main stage."""

    name: str
    forms: tuple[Form, ...]


def sketches_of(task: Task) -> list[Sketch]:
    """The search space of a task: sketches by the rules, and the library's own schedule, opened, last.

    ScheduleError when no rule makes a legal schedule, or there is nothing to compute.
    """
    require_iterations(task)
    return list(each_sketch(task, library_sketch(task)))


def each_sketch(task: Task, library: Sketch | None) -> Iterator[Sketch]:
    """The same, one after the other. A library that knows no operator of the program adds nothing."""
    units = _units(task)
    refused: ScheduleError | None = None
    found = [library] if library is not None and is_of_library(task) else []
    none = not found
    for forms in _combinations(units):
        try:
            yield _sketch(task, units, forms)
            none = False
        except ScheduleError as error:
            refused = error
    if none and refused is not None:
        raise refused
    yield from found


def require_iterations(task: Task) -> None:
    """Raise ScheduleError for loops of no iterations: no schedule is better than another."""
    empty = [stage.name for stage in stages_of(task) if not stage.points]
    if empty or not count_operations(task.program):
        raise ScheduleError(
            "autotune",
            f"{', '.join(empty) or task.workload} has no iterations: there is nothing to tune",
            suggested=["give it extents of at least 1"],
        )


def _units(task: Task) -> tuple[_Unit, ...]:
    ordered = bound_forms if task.target.can.device else ordered_forms
    units = [_Unit(op.name, tuple(ordered(op))) for op in ordered_stages(task)]
    for group in groups_of(task):
        units.append(_Unit(group.main.name, _forms(task, group)))
    order = {op.name: n for n, op in enumerate(task.program.ops)}
    return tuple(sorted(units, key=lambda unit: order[unit.name]))


def _forms(task: Task, group: Group) -> tuple[Form, ...]:
    """The forms of the first rule that knows a group; of reductions along memory, tiles of dot products besides.

    Those come first where lanes along all axes of the reduction would be gathered. On a GPU all forms of all rules.
    """
    if task.target.can.device:
        return tuple(form for rule in GPU_RULES for form in rule(task, group))
    found = next((found for rule in RULES if (found := rule(task, group))), [])
    dots = dot_forms(task, group)
    return (*dots, *found) if sums_lie_apart(group.main) else (*found, *dots)


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
