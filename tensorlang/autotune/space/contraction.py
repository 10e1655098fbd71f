"""Sketches of contractions: one reduction over products (or any pairing) of two matrices.

`C[i, j] = reduce over k of f(A[i, k], B[k, j])`, in whatever order A and B store their axes. The sketches are
the loops around a micro-kernel: a register tile of rows times vectors, its reduction inside, columns and rows
in blocks around it, and the matrix that runs along the vectors packed into panels of the tile's width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tensorlang import te
from tensorlang.autotune.nest import Access, Array, Kind, Loop, Nest
from tensorlang.autotune.sketch import Columns, Constraint, Sketch
from tensorlang.autotune.space.candidates import ROWS, UNROLLS, blocks, powers, up_to, vector_widths
from tensorlang.autotune.space.structure import Stage
from tensorlang.autotune.task import Task
from tensorlang.schedule.schedule import Schedule
from tensorlang.te.operation import PlaceholderOp

MOST_UNROLLED = 256  # vector operations in one body; beyond, compiling costs more than it gains


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
    """One shape of schedule. `pack`: nothing, all of B at the start, or a block of columns at a time.

    `order` of the loops over row tiles and column tiles; `parallel` names the one that threads share, if any.
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
    packs = ("none",) if thin else ("all", "block", "none")
    shared = ("",) if threads == 1 else ("parallel-rows", "parallel-blocks")
    orders = ("rows-outer", "columns-outer")
    return tuple(Form(pack, order, parallel) for pack in packs for order in orders for parallel in shared)


def contraction_sketches(task: Task, stage: Stage) -> list[Sketch]:
    """Every sketch of a contraction; none when the stage is not one."""
    found = contraction_of(stage)
    if found is None:
        return []
    thin = found.extent(found.i) < 4
    widths = vector_widths(found.extent(found.j), task.target.lanes(stage.bits))
    return [_sketch(task, found, form, width) for form in forms(task.threads, thin) for width in widths]


def _sketch(task: Task, c: Contraction, form: Form, width: int) -> Sketch:
    """The width of the tile is fixed: it is part of the packed layout, and a trace holds one layout."""
    schedule = schedule_contraction(task, c, form, width)
    lanes = task.target.lanes(c.stage.bits)
    vectors = -(-width // lanes)
    registers = task.target.vector_registers

    def fits_registers(values: Columns) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        # With one vector a row, the broadcast folds into the multiply-add.
        spare = vectors + 1 if vectors > 1 else 1
        return np.asarray(values["rows"] * vectors + spare <= registers)

    def short_body(values: Columns) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return np.asarray(values["rows"] * vectors * values["unroll"] <= MOST_UNROLLED)

    trace = schedule.trace
    return Sketch(
        f"{form.name}.{width}",
        trace,
        {name: tuple(map(int, values)) for name, values in trace.open.items()},
        (
            Constraint(f"the register tile fits {registers} vector registers", fits_registers),
            Constraint(f"the unrolled body has at most {MOST_UNROLLED} vector operations", short_body),
        ),
        lambda values: _nest(c, form, width, values),
    )


def schedule_contraction(task: Task, c: Contraction, form: Form, width: int) -> Schedule:
    """Write the base schedule of a form: accumulators in a local tile, tails peeled, decisions open."""
    s = te.create_schedule([t.op for t in task.outputs])
    M, N, K = (c.extent(axis) for axis in (c.i, c.j, c.k))
    out = next(t for t in task.outputs if t.op.name == c.stage.op.name)
    rows = s.sample_choice("rows", candidates=up_to(ROWS, M))
    row_block = s.sample_choice("row_block", candidates=powers(blocks(M, 4)))
    column_block = s.sample_choice("column_block", candidates=powers(blocks(N, width)))
    unroll = s.sample_choice("unroll", candidates=up_to(UNROLLS, K))

    local = s.cache_write(out, "local")
    packed = s.cache_read(_input(task, c.b.buffer), "global", [local]) if form.pack != "none" else None
    it, ii = s[out].split(c.i, rows, tail="peel")
    jt, ji = s[out].split(c.j, width, tail="peel")
    ib, it = s[out].split(it, row_block)
    jb, jt = s[out].split(jt, column_block)
    order = [jb, ib, it, jt] if form.order == "rows-outer" else [jb, ib, jt, it]
    s[out].reorder(*order, ii, ji)
    s[out].unroll(ii)
    s[out].vectorize(ji)
    s[local].compute_at(s[out], order[-1])
    ko, ki = s[local].split(c.k, unroll)
    s[local].reorder(ko, ki, c.i, c.j)
    for axis in (ki, c.i):
        s[local].unroll(axis)
    s[local].vectorize(c.j)
    if form.parallel:
        s[out].parallel(ib if form.parallel == "parallel-rows" else jb)
    if packed is not None:
        _pack(s, c, form, packed, out, jb, width)
    return s


def _pack(s: Schedule, c: Contraction, form: Form, packed: te.Tensor, out: te.Tensor, jb: te.Axis, width: int) -> None:
    """Lay B out as panels of the tile's width, each contiguous in the order in which the micro-kernel reads it."""
    rows_first = c.b.dims[0][0][0] == c.k
    if rows_first:
        panel, _, lane = s[packed].transform_layout(lambda k, j: (j // width, k, j % width))
    else:
        panel, _, lane = s[packed].transform_layout(lambda j, k: (j // width, k, j % width))
    s[packed].vectorize(lane)
    if form.pack == "block":
        s[packed].compute_at(s[out], jb)
    elif form.parallel:
        s[packed].parallel(panel)


def _input(task: Task, name: str) -> te.Tensor:
    return next(t for t in task.tensors if t.name == name and isinstance(t.op, PlaceholderOp))


def _nest(c: Contraction, form: Form, width: int, values: Columns) -> Nest:
    rows, row_block, column_block, unroll = (values[n] for n in ("rows", "row_block", "column_block", "unroll"))
    M, N, K = (float(c.extent(axis)) for axis in (c.i, c.j, c.k))
    row_tiles, column_tiles = np.ceil(M / rows), np.full_like(rows, np.ceil(N / width))
    it = Loop(c.i, np.minimum(row_block, row_tiles))
    jt = Loop(c.j, np.minimum(column_block, column_tiles))
    ib = Loop(c.i, np.ceil(row_tiles / row_block), _kind(form, "parallel-rows"))
    jb = Loop(c.j, np.ceil(column_tiles / column_block), _kind(form, "parallel-blocks"))
    inner = (it, jt) if form.order == "rows-outer" else (jt, it)
    loops = (
        jb,
        ib,
        *inner,
        Loop(c.k, np.ceil(K / unroll)),
        Loop(c.k, unroll, Kind.UNROLLED),
        Loop(c.i, rows, Kind.UNROLLED),
        Loop(c.j, np.full_like(rows, width), Kind.VECTORIZED),
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


def _kind(form: Form, name: str) -> Kind:
    return Kind.PARALLEL if form.parallel == name else Kind.SERIAL


def _packing_bytes(c: Contraction, form: Form, like: Array) -> Array:
    """Bytes copied to pack B; a block is read back from a nearer cache, so it counts three quarters."""
    whole = 2.0 * c.extent(c.k) * c.extent(c.j) * c.b.itemsize
    return np.full_like(like, {"none": 0.0, "all": whole, "block": 0.75 * whole}[form.pack])
