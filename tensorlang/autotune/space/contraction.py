"""Sketches of contractions: one reduction over products (or any pairing) of two matrices.

`C[i, j] = reduce over k of f(A[i, k], B[k, j])`, in whatever order A and B store their axes. The sketches are
the loops around a micro-kernel: a register tile of rows times vectors, its reduction inside, columns and rows
in blocks around it, and the matrix that runs along the vectors packed into panels of the tile's width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tensorlang.autotune.model.nest import Access, Array, Kind, Loop, Nest
from tensorlang.autotune.search.sketch import Columns, Constraint, Sketch
from tensorlang.autotune.space.candidates import ROWS, UNROLLS, column_blocks, row_blocks, up_to, vector_widths
from tensorlang.autotune.space.draft import Draft
from tensorlang.autotune.space.limits import tile_constraints
from tensorlang.autotune.space.structure import Stage
from tensorlang.autotune.task import Task
from tensorlang.schedule import Decision, Schedule
from tensorlang.te.axis import Axis
from tensorlang.te.operation import PlaceholderOp, Tensor

THIN = 4  # with fewer rows, B is used too little to pay for packing


@dataclass(frozen=True, slots=True)
class Contraction:
    """The roles of a contraction's axes and arrays: C[i, j] over k, A without j, B without i."""

    stage: Stage
    i: str
    j: str
    k: str
    a: Access
    b: Access

    def extent(self, axis: str) -> int:
        return self.stage.extents[axis]


@dataclass(frozen=True, slots=True)
class Form:
    """One shape of schedule: three loops over blocks and tiles around the micro-kernel.

    `order`: `rows` walks row tiles, and column tiles inside a block of columns; `columns` the other way round.
    `pack`: nothing, all of B at the start, or a block of columns at a time. `parallel`: the loop that threads
    share, `block` or `tile` (the second one), if any.
    """

    pack: str
    order: str
    parallel: str = ""

    @property
    def name(self) -> str:
        return ".".join(filter(None, ("contraction", f"pack-{self.pack}", self.order, self.parallel)))


def contraction_of(stage: Stage) -> Contraction | None:
    """The contraction that a stage is, or None."""
    if len(stage.spatial) != 2 or len(stage.reduce) != 1 or len(stage.reads) != 2 or stage.op.num_outputs != 1:
        return None
    (i, j), (k,) = stage.spatial, stage.reduce
    a = next((r for r in stage.reads if r.axes == {i, k}), None)
    b = next((r for r in stage.reads if r.axes == {k, j}), None)
    simple = all(len(terms) == 1 and terms[0][1] == 1 for r in stage.reads for terms in r.dims)
    if a is None or b is None or not simple or len(b.dims) != 2 or len(a.dims) != 2:
        return None
    return Contraction(stage, i, j, k, a, b)


def forms(threads: int, thin: bool) -> tuple[Form, ...]:
    """The shapes of schedule worth trying; a `thin` contraction reuses B too little to pack it."""
    plain = (("none", "rows"), ("none", "columns"))
    packed = () if thin else (("block", "rows"), ("all", "rows"), ("all", "columns"))
    shared = ("",) if threads == 1 else ("block", "tile")
    return tuple(Form(pack, order, parallel) for pack, order in (*packed, *plain) for parallel in shared)


def contraction_sketches(task: Task, stage: Stage) -> list[Sketch]:
    """Every sketch of a contraction; none when the stage is not one."""
    found = contraction_of(stage)
    if found is None:
        return []
    thin = found.extent(found.i) < THIN
    return [_sketch(task, found, form) for form in forms(task.threads, thin)]


def _sketch(task: Task, c: Contraction, form: Form) -> Sketch:
    trace = schedule_contraction(task, c, form).trace
    return Sketch(
        form.name,
        trace,
        trace.open,
        (*tile_constraints(task, c.stage), *_block_constraints(c, form)),
        lambda values: _nest(c, form, values),
    )


def _block_constraints(c: Contraction, form: Form) -> tuple[Constraint, ...]:
    """Blocks are whole tiles, and not longer than needed: the first that covers the axis is the last."""
    axis, tile = (c.j, "width") if form.order == "rows" else (c.i, "rows")
    extent = c.extent(axis)
    return (
        Constraint(f"blocks of {axis} are whole tiles", lambda v: v["block"] % v[tile] == 0),
        Constraint(f"blocks fit {axis}", lambda v: v["block"] < 2 * np.maximum(extent, v[tile])),
    )


def schedule_contraction(task: Task, c: Contraction, form: Form) -> Schedule:
    """Write the base schedule of a form: accumulators in a local tile, tails peeled, decisions open."""
    s = Draft.of(task.outputs)
    M, N, K = (c.extent(axis) for axis in (c.i, c.j, c.k))
    lanes = task.target.lanes(c.stage.bits)
    out = next(t for t in task.outputs if t.op.name == c.stage.op.name)
    rows = s.sample_choice("rows", candidates=up_to(ROWS, M))
    width = s.sample_choice("width", candidates=vector_widths(N, lanes))
    blocks = column_blocks(N, lanes) if form.order == "rows" else row_blocks(M)
    block = s.sample_choice("block", candidates=blocks)
    unroll = s.sample_choice("unroll", candidates=up_to(UNROLLS, K))

    local = s.cache_write(out, "local")
    packed = s.cache_read(_input(task, c.b.buffer), "global", [local]) if form.pack != "none" else None
    outer, rest = s[out].split(c.j if form.order == "rows" else c.i, block)
    it, ii = s[out].split(c.i if form.order == "rows" else rest, rows, tail="peel")
    jt, ji = s[out].split(rest if form.order == "rows" else c.j, width, tail="peel")
    tiles = (it, jt) if form.order == "rows" else (jt, it)
    s[out].reorder(outer, *tiles, ii, ji)
    s[out].unroll(ii)
    s[out].vectorize(ji)
    s[local].compute_at(s[out], tiles[-1])
    ko, ki = s[local].split(c.k, unroll)
    s[local].reorder(ko, ki, c.i, c.j)
    for axis in (ki, c.i):
        s[local].unroll(axis)
    s[local].vectorize(c.j)
    if form.parallel:
        s[out].parallel(outer if form.parallel == "block" else tiles[0])
    if packed is not None:
        panel = _pack(s, c, packed, width)
        if form.pack == "block":
            s[packed].compute_at(s[out], outer)
        if form.parallel and (form.pack, form.parallel) != ("block", "block"):
            s[packed].parallel(panel)
    return s.prove()


def _pack(s: Schedule, c: Contraction, packed: Tensor, width: Decision) -> Axis:
    """Lay B out as panels of the tile's width, each contiguous in the order in which the micro-kernel reads it.

    Returns the axis of the panels.
    """
    tile = width.as_expr()  # in an index expression, so that the layout follows the decision
    if c.b.dims[0][0][0] == c.k:
        panel, _, lane = s[packed].transform_layout(lambda k, j: (j // tile, k, j % tile))
    else:
        panel, _, lane = s[packed].transform_layout(lambda j, k: (j // tile, k, j % tile))
    s[packed].vectorize(lane)
    return panel


def _input(task: Task, name: str) -> Tensor:
    return next(t for t in task.tensors if t.name == name and isinstance(t.op, PlaceholderOp))


def _nest(c: Contraction, form: Form, values: Columns) -> Nest:
    rows, width, unroll, block = (values[n] for n in ("rows", "width", "unroll", "block"))
    M, N, K = (c.extent(axis) for axis in (c.i, c.j, c.k))
    if form.order == "rows":
        inside = np.minimum(np.ceil(block / width), np.ceil(N / width))
        around = (Loop(c.j, np.ceil(N / block)), Loop(c.i, np.ceil(M / rows)), Loop(c.j, inside))
    else:
        inside = np.minimum(np.ceil(block / rows), np.ceil(M / rows))
        around = (Loop(c.i, np.ceil(M / block)), Loop(c.j, np.ceil(N / width)), Loop(c.i, inside))
    shared = {"": -1, "block": 0, "tile": 1}[form.parallel]
    loops = (
        *(replace(loop, kind=Kind.PARALLEL) if n == shared else loop for n, loop in enumerate(around)),
        Loop(c.k, np.ceil(K / unroll)),
        Loop(c.k, unroll, Kind.UNROLLED),
        Loop(c.i, rows, Kind.UNROLLED),
        Loop(c.j, width, Kind.VECTORIZED),
    )
    return Nest(
        loops,
        (c.stage.output, c.a, replace(c.b, packed=form.pack != "none")),
        c.stage.extents,
        frozenset({c.k}),
        c.stage.operations,
        c.stage.bits,
        _packing_bytes(c, form, rows),
        local=True,
    )


def _packing_bytes(c: Contraction, form: Form, like: Array) -> Array:
    """Bytes copied to pack B; a block is read back from a nearer cache, so it counts three quarters."""
    whole = 2.0 * c.extent(c.k) * c.extent(c.j) * c.b.itemsize
    return np.full_like(like, {"none": 0.0, "all": whole, "block": 0.75 * whole}[form.pack])
