"""Sketches of any program: its heaviest stage tiled at three levels, elementwise producers inlined, the rest plain.

The register tile is the last axis, vectorised, times the axis before it, unrolled. Reductions run inside the
register tile's accumulators (local), or in blocks around cache tiles (blocks).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tensorlang.autotune.model.nest import Array, Kind, Loop, Nest
from tensorlang.autotune.search.sketch import Columns, Constraint, Mask, Sketch
from tensorlang.autotune.space.candidates import ROWS, UNROLLS, column_blocks, powers, row_blocks, up_to, vector_widths
from tensorlang.autotune.space.draft import Draft
from tensorlang.autotune.space.limits import tile_constraints
from tensorlang.autotune.space.structure import Stage
from tensorlang.autotune.task import Task
from tensorlang.errors import ScheduleError
from tensorlang.te.axis import Axis
from tensorlang.te.operation import Tensor

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
    return Sketch(
        form.name,
        trace,
        trace.open,
        (*tile_constraints(task, main, form.vectorize), *_tile_fits(main)),
        lambda values: _nest(main, form, values, task.threads),
    )


def _tile_fits(main: Stage) -> tuple[Constraint, ...]:
    """Cache tiles are whole register tiles, and not longer than needed: the first that covers an axis is the last."""

    def fits(axis: str) -> Constraint:
        def holds(values: Columns) -> Mask:
            tile, bottom = values[f"tile_{axis}"], _bottom(main, axis, values)
            return np.asarray((tile % bottom == 0) & (tile < 2 * np.maximum(main.extents[axis], bottom)))

        return Constraint(f"tiles of {axis} are whole register tiles within the axis", holds)

    return tuple(fits(axis) for axis in main.spatial)


def _bottom(main: Stage, axis: str, values: Columns) -> Array:
    """What the register tile takes of an axis."""
    if axis == main.spatial[-1]:
        return values["width"]
    return values["rows"] if axis == main.spatial[-2] else np.ones_like(values["unroll"])


def schedule_tiled(task: Task, stages: tuple[Stage, ...], main: Stage, form: Form) -> Draft:
    """Write the base schedule of a form, decisions open."""
    s = Draft.of(task.outputs)
    for stage in stages:
        if stage is not main and not _inline(s, task, stage):
            _schedule_plain(s, task, stage)
    _schedule_main(s, task, main, form)
    return s.prove()


def _inline(s: Draft, task: Task, stage: Stage) -> bool:
    """Inline an elementwise producer; False when it is an output, a reduction, or may not be inlined."""
    if stage.reduce or stage.op.name in {t.op.name for t in task.outputs}:
        return False
    return s.attempt(s[stage.op.name].compute_inline)


def _schedule_plain(s: Draft, task: Task, stage: Stage) -> None:
    """A stage that is not the heaviest: its last axis vectorised, its first one parallel, where that is legal."""
    if not stage.spatial:
        return
    loops = s[stage.op.name]
    lanes = task.target.lanes(stage.bits)
    last = stage.spatial[-1]

    def vectorize() -> None:
        outer, inner = loops.split(last, lanes)
        loops.reorder(*stage.spatial[:-1], outer, *stage.reduce, inner)
        loops.vectorize(inner)

    if stage.extents[last] >= lanes:
        s.attempt(vectorize)
    if task.threads > 1 and len(stage.spatial) > 1:
        s.attempt(lambda: loops.parallel(stage.spatial[0]))


def _schedule_main(s: Draft, task: Task, main: Stage, form: Form) -> None:
    name = main.op.name
    if not main.spatial:
        _schedule_scalar(s, main)
        return
    *others, last = main.spatial
    lanes = task.target.lanes(main.bits)
    widths = vector_widths(main.extents[last], lanes) if form.vectorize else (1,)
    width = s.sample_choice("width", candidates=widths)
    rows = s.sample_choice("rows", candidates=up_to(ROWS, main.extents[others[-1]]) if others else (1,))
    tiles = {
        axis: s.sample_choice(f"tile_{axis}", candidates=_tile_sizes(main, axis, widths[0])) for axis in main.spatial
    }
    unroll = s.sample_choice("unroll", candidates=_unrolls(main))

    stage = s[name]
    outer: list[Axis | str] = []
    middle: list[Axis | str] = []
    inner: list[Axis | str] = []
    for axis in main.spatial:
        block, within = stage.split(axis, tiles[axis])
        if axis == last or axis == others[-1]:
            within, bottom = stage.split(within, width if axis == last else rows, tail="peel")
            inner.append(bottom)
        outer.append(block)
        middle.append(within)
    _place_reduction(s, task, main, form, (outer, middle, inner), unroll)
    if task.threads > 1:
        s.attempt(lambda: stage.parallel(outer[0]))


def _tile_sizes(main: Stage, axis: str, lanes: int) -> tuple[int, ...]:
    """Cache tiles of an axis: whole register tiles where it has them."""
    extent = main.extents[axis]
    if axis == main.spatial[-1]:
        return column_blocks(extent, lanes)
    return row_blocks(extent) if axis == main.spatial[-2] else powers(extent)


def _unrolls(main: Stage) -> tuple[int, ...]:
    return up_to(UNROLLS, main.extents[main.reduce[-1]]) if main.reduce else (1,)


def _place_reduction(
    s: Draft,
    task: Task,
    main: Stage,
    form: Form,
    loops: tuple[list[Axis | str], list[Axis | str], list[Axis | str]],
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
    for loop in unrolled:
        stage.unroll(loop)
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


def _schedule_scalar(s: Draft, main: Stage) -> None:
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
        bottom = _bottom(main, axis, values)
        if axis == main.spatial[-1]:
            inner.append(Loop(axis, bottom, Kind.VECTORIZED if form.vectorize else Kind.UNROLLED))
        elif axis == main.spatial[-2]:
            inner.append(Loop(axis, bottom, Kind.UNROLLED))
        tile = np.minimum(values[f"tile_{axis}"], main.extents[axis])
        outer.append(Loop(axis, np.ceil(main.extents[axis] / tile)))
        middle.append(Loop(axis, np.ceil(tile / bottom)))
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
