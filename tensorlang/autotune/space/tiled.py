"""Sketches of any program: its heaviest stage tiled at three levels, elementwise producers inlined, the rest plain.

The register tile is the last axis, vectorised, times the axis before it, unrolled. Reductions run inside the
register tile's accumulators (local), or in blocks around cache tiles (blocks).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tensorlang import te
from tensorlang.autotune.nest import Array, Kind, Loop, Nest
from tensorlang.autotune.sketch import Columns, Constraint, Sketch
from tensorlang.autotune.space.candidates import ROWS, UNROLLS, powers, up_to, vector_widths
from tensorlang.autotune.space.structure import Stage
from tensorlang.autotune.task import Task
from tensorlang.errors import ScheduleError
from tensorlang.schedule.schedule import Schedule
from tensorlang.te.operation import Tensor

MOST_UNROLLED = 256
SMALL_REDUCTION = 8  # reduce axes up to this extent, such as those of a convolution's window, are not blocked


@dataclass(frozen=True, slots=True)
class Form:
    """One shape of schedule: where the reduction runs (`none`, `local`, `blocks`) and whether the last axis is
    vectorised or left scalar."""

    reduction: str
    vectorize: bool

    @property
    def name(self) -> str:
        return f"tiled.{self.reduction}.{'vector' if self.vectorize else 'scalar'}"


def tiled_sketches(task: Task, stages: tuple[Stage, ...], main: Stage) -> list[Sketch]:
    """Every sketch that the program allows; ScheduleError when none does."""
    reductions = ("none",) if not main.reduce else ("local", "blocks")
    found: list[Sketch] = []
    refused: ScheduleError | None = None
    for vectorize in (True, False):
        for reduction in reductions:
            try:
                found.append(_sketch(task, stages, main, Form(reduction, vectorize)))
            except ScheduleError as error:
                refused = error
        if found:
            return found
    if refused is None:
        return []
    raise refused


def _sketch(task: Task, stages: tuple[Stage, ...], main: Stage, form: Form) -> Sketch:
    trace = schedule_tiled(task, stages, main, form).trace
    registers = task.target.vector_registers
    lanes = task.target.lanes(main.bits) if form.vectorize else 1

    def fits_registers(values: Columns) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        vectors = np.ceil(_knob(values, "width") / lanes)
        return np.asarray(_knob(values, "rows") * vectors + np.where(vectors > 1, vectors + 1, 1) <= registers)

    def short_body(values: Columns) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        size = _knob(values, "rows") * np.ceil(_knob(values, "width") / lanes) * values["unroll"]
        return np.asarray(size <= MOST_UNROLLED)

    return Sketch(
        form.name,
        trace,
        {name: tuple(map(int, values)) for name, values in trace.open.items()},
        (
            Constraint(f"the register tile fits {registers} vector registers", fits_registers),
            Constraint(f"the unrolled body has at most {MOST_UNROLLED} vector operations", short_body),
        ),
        lambda values: _nest(main, form, values, task.threads),
    )


def _knob(values: Columns, name: str) -> Array:
    """A decision that a stage without spatial axes does not have is 1."""
    return values[name] if name in values else np.ones_like(values["unroll"])


def schedule_tiled(task: Task, stages: tuple[Stage, ...], main: Stage, form: Form) -> Schedule:
    """Write the base schedule of a form, decisions open."""
    s = te.create_schedule([t.op for t in task.outputs])
    for stage in stages:
        if stage is not main and not _inline(s, task, stage):
            _schedule_plain(s, task, stage)
    _schedule_main(s, task, main, form)
    return s


def _inline(s: Schedule, task: Task, stage: Stage) -> bool:
    """Inline an elementwise producer; False when it is an output, a reduction, or may not be inlined."""
    if stage.reduce or stage.op.name in {t.op.name for t in task.outputs}:
        return False
    try:
        s[stage.op.name].compute_inline()
    except ScheduleError:
        return False
    return True


def _schedule_plain(s: Schedule, task: Task, stage: Stage) -> None:
    """A stage that is not the heaviest: its last axis vectorised, its first one parallel."""
    if not stage.spatial:
        return
    lanes = task.target.lanes(stage.bits)
    last = stage.spatial[-1]
    if stage.extents[last] >= lanes:
        outer, inner = s[stage.op.name].split(last, lanes)
        _reduce_outside(s, stage, [*stage.spatial[:-1], outer], [inner])
        _annotate(s, stage, inner, "vectorize")
    if task.threads > 1 and len(stage.spatial) > 1:
        _annotate(s, stage, stage.spatial[0], "parallel")


def _reduce_outside(s: Schedule, stage: Stage, outer: list[te.Axis | str], inner: list[te.Axis | str]) -> None:
    """Put the reduction between outer and inner loops; leave the order when that is not legal."""
    try:
        s[stage.op.name].reorder(*outer, *stage.reduce, *inner)
    except ScheduleError:
        return


def _annotate(s: Schedule, stage: Stage, axis: te.Axis | str, how: str) -> None:
    """Annotate an axis where that is legal."""
    try:
        getattr(s[stage.op.name], how)(axis)
    except ScheduleError:
        return


def _schedule_main(s: Schedule, task: Task, main: Stage, form: Form) -> None:
    name = main.op.name
    if not main.spatial:
        _schedule_scalar(s, main)
        return
    *others, last = main.spatial
    lanes = task.target.lanes(main.bits)
    widths = vector_widths(main.extents[last], lanes) if form.vectorize else (1,)
    width = s.sample_choice("width", candidates=widths)
    rows = s.sample_choice("rows", candidates=up_to(ROWS, main.extents[others[-1]]) if others else (1,))
    tiles = {axis: s.sample_choice(f"tile_{axis}", candidates=_tile_sizes(main, axis)) for axis in main.spatial}
    unroll = s.sample_choice("unroll", candidates=_unrolls(main))

    stage = s[name]
    outer: list[te.Axis | str] = []
    middle: list[te.Axis | str] = []
    inner: list[te.Axis | str] = []
    for axis in main.spatial:
        rest: te.Axis | str = axis
        if axis == last or (others and axis == others[-1]):
            rest, bottom = stage.split(axis, width if axis == last else rows, tail="peel")
            inner.append(bottom)
        block, within = stage.split(rest, tiles[axis])
        outer.append(block)
        middle.append(within)
    _place_reduction(s, task, main, form, (outer, middle, inner), unroll)
    if task.threads > 1:
        _annotate(s, main, outer[0], "parallel")


def _tile_sizes(main: Stage, axis: str) -> tuple[int, ...]:
    """Cache tiles of an axis, in register tiles."""
    return powers(main.extents[axis])[:10]


def _unrolls(main: Stage) -> tuple[int, ...]:
    return up_to(UNROLLS, main.extents[main.reduce[-1]]) if main.reduce else (1,)


def _place_reduction(
    s: Schedule,
    task: Task,
    main: Stage,
    form: Form,
    loops: tuple[list[te.Axis | str], list[te.Axis | str], list[te.Axis | str]],
    unroll: int,
) -> None:
    """Order the loops of the heaviest stage and put its reduction where the form wants it."""
    outer, middle, inner = loops
    stage = s[main.op.name]
    unrolled, vector = inner[:-1], inner[-1]
    if form.reduction == "local":
        out = next(t for t in _tensors(task) if t.op.name == main.op.name)
        local = s.cache_write(out, "local")
        stage.reorder(*outer, *middle, *inner)
        s[local].compute_at(stage, middle[-1])
        ko, ki = s[local].split(main.reduce[-1], unroll)
        s[local].reorder(*main.reduce[:-1], ko, ki, *main.spatial)
        s[local].unroll(ki)
        for axis in main.spatial[-2:-1]:
            s[local].unroll(axis)
        if form.vectorize:
            s[local].vectorize(main.spatial[-1])
    elif form.reduction == "blocks":
        blocked = s.sample_choice("reduce_block", candidates=_reduce_blocks(main))
        ko, ki = stage.split(main.reduce[-1], blocked)
        km, ki = stage.split(ki, unroll)
        stage.reorder(*outer, *main.reduce[:-1], ko, *middle, km, ki, *inner)
        stage.unroll(ki)
    else:
        stage.reorder(*outer, *middle, *inner)
    for axis in unrolled:
        stage.unroll(axis)
    if form.vectorize:
        stage.vectorize(vector)


def _reduce_blocks(main: Stage) -> tuple[int, ...]:
    extent = main.extents[main.reduce[-1]]
    return (extent,) if extent <= SMALL_REDUCTION else powers(extent, 16)


def _tensors(task: Task) -> list[Tensor]:
    """All tensors of the task, intermediate ones included."""
    found = list(task.tensors)
    for tensor in found:
        found += [t for t in tensor.op.input_tensors if t not in found]
    return found


def _schedule_scalar(s: Schedule, main: Stage) -> None:
    """A reduction to one number: only its innermost loop can be unrolled."""
    unroll = s.sample_choice("unroll", candidates=_unrolls(main))
    stage = s[main.op.name]
    if main.reduce:
        _, inner = stage.split(main.reduce[-1], unroll)
        stage.unroll(inner)


def _nest(main: Stage, form: Form, values: Columns, threads: int) -> Nest:
    unroll = values["unroll"]
    one = np.ones_like(unroll)
    outer: list[Loop] = []
    middle: list[Loop] = []
    inner: list[Loop] = []
    for axis in main.spatial:
        bottom = one
        if axis == main.spatial[-1]:
            bottom = values["width"]
            inner.append(Loop(axis, bottom, Kind.VECTORIZED if form.vectorize else Kind.UNROLLED))
        elif axis == main.spatial[-2]:
            bottom = values["rows"]
            inner.append(Loop(axis, bottom, Kind.UNROLLED))
        tiles = np.ceil(main.extents[axis] / bottom)
        within = np.minimum(values[f"tile_{axis}"], tiles)
        outer.append(Loop(axis, np.ceil(tiles / within)))
        middle.append(Loop(axis, within))
    if outer and threads > 1:
        outer[0] = replace(outer[0], kind=Kind.PARALLEL)
    return Nest(
        tuple(_with_reduction(main, form, values, (outer, middle, inner))),
        main.accesses,
        main.extents,
        frozenset(main.reduce),
        main.operations,
        main.bits,
        0 * one,
        local=form.reduction == "local",
    )


def _with_reduction(
    main: Stage, form: Form, values: Columns, loops: tuple[list[Loop], list[Loop], list[Loop]]
) -> list[Loop]:
    """The loops of a nest in order, the reduction among them."""
    outer, middle, inner = loops
    if not main.reduce:
        return [*outer, *middle, *inner]
    one = np.ones_like(values["unroll"])
    leading = [Loop(axis, one * main.extents[axis]) for axis in main.reduce[:-1]]
    last, unroll = main.reduce[-1], values["unroll"]
    size = one * main.extents[last]
    if form.reduction == "blocks" and main.spatial:
        block = np.minimum(values["reduce_block"], size)
        walk = [Loop(last, np.ceil(block / unroll)), Loop(last, unroll, Kind.UNROLLED)]
        return [*outer, *leading, Loop(last, np.ceil(size / block)), *middle, *walk, *inner]
    walk = [Loop(last, np.ceil(size / unroll)), Loop(last, unroll, Kind.UNROLLED)]
    return [*outer, *middle, *leading, *walk, *inner]
