"""The library's schedule of a program as a sketch of its own: measured first, so that tuning never falls behind it."""

from __future__ import annotations

from collections.abc import Mapping

from tensorlang.autotune.search.sketch import Sketch
from tensorlang.autotune.space.draft import Draft, sketch_of
from tensorlang.autotune.task import Task
from tensorlang.errors import TensorlangError
from tensorlang.schedules.default import apply_forms
from tensorlang.schedules.prepare import prepare
from tensorlang.schedules.recognise import groups_of, ordered_stages
from tensorlang.schedules.room import Room, prefix_of

SEED = "library"


def library_sketch(task: Task) -> Sketch | None:
    """`topi.schedule` of the task, which tuning measures first; None where it gives none.

    The sizes of its forms are open, and so are those of attention on CPUs. The other rules by tags have none: threads,
    tiles and layouts of copies belong together.
    """
    try:
        return _with_open_sizes(task)
    except TensorlangError:
        return None


def _with_open_sizes(task: Task) -> Sketch:
    draft, rooms, prepared = Draft.of(task.outputs), list[Room](), Draft.of(task.outputs)
    prepare(prepared, task.target)
    on_cpu = not task.target.can.device
    several = (
        len(groups_of(prepared.program, words=on_cpu, transforms=on_cpu)) + len(ordered_stages(prepared.program)) > 1
    )

    def room(stage: str) -> Room:
        rooms.append(Room(draft, task.target, stage, prefix_of(stage) if several else ""))
        return rooms[-1]

    apply_forms(draft, task.target, room)
    limits = [limit for room in rooms for limit in room.constraints]
    start: Mapping[str, int] = {name: draft.trace.decisions[name] for name in draft.trace.open}
    return sketch_of(SEED, draft, limits, start)
