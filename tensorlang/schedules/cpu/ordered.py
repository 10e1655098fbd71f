"""Programs of ordered statements: the order that isl proposes, tiles of permutable loops, tiles in time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

from tensorlang import dtypes
from tensorlang.errors import ScheduleError
from tensorlang.ir.affine import affine
from tensorlang.ir.expr import Load, variables
from tensorlang.ir.expr import walk as walk_expr
from tensorlang.ir.loops import REDUCE_TREE
from tensorlang.ir.stmt import For, stmt_exprs, walk
from tensorlang.polyhedral.ordered import Source, shared_prefix, sources
from tensorlang.schedule import primitives as p
from tensorlang.schedule.axis_range import constant
from tensorlang.schedule.primitive import Primitive
from tensorlang.schedule.proposals.auto_order import auto_order
from tensorlang.schedule.stage import Stage
from tensorlang.schedules.room import Form, Room, waits
from tensorlang.te.operation import HybridOp

_TILES = (8, 16, 32, 64, 128, 256)  # the smallest first: what is legal for many tiles is legal for few
_TIME = (2, 4, 8, 16, 32)
_JAM = 4
"""Rows that are added to results at a time."""
_SHARED = 1 << 17
"""Iterations that are worth to be shared between threads, which have to wait for each other."""
_COLUMNS = 32
"""Elements of a row that a thread has at least: several lines."""
BESIDE = 4
"""Rows side by side: operations that wait take four cycles or so.

Of two arrays whose rows lie pages apart, a first cache of eight ways holds no more: eight took eight times as long.
"""


def ordered_forms(op: HybridOp) -> list[Form]:
    """Forms of a stage of ordered statements; the last is the order in which it was declared."""
    return [
        Form("reordered.tiled", partial(_reordered, op=op, tiled=True)),
        Form("time-tiled", partial(_time_tiled, op=op, shape="rectangular")),
        Form("diamonds", partial(_time_tiled, op=op, shape="diamond")),
        Form("reordered", partial(_reordered, op=op, tiled=False)),
        Form(
            "declared", partial(_declared, op=op), why="statements in their order: vectors, threads, rows side by side"
        ),
    ]


def _reordered(room: Room, op: HybridOp, tiled: bool) -> None:
    """isl's order, replayed; the size of its tiles is left open."""
    size = room.choose("tile", _TILES) if tiled else None
    before = len(room.s.trace.steps)
    auto_order(room.s, [op.name], room.target.cores > 1, size)
    made = room.s.trace.steps[before:]
    if not made or (tiled and not any(isinstance(step, p.TileBy) for step in made)):
        raise ScheduleError("autotune", f"isl proposes no such order of {op.name}")
    _vectorize(room, op)


def _time_tiled(room: Room, op: HybridOp, shape: str) -> None:
    """Tiles over several iterations of the outermost loop; their sizes are left open."""
    shared = shared_prefix(*room.s.state.stages[op.name].places.values())
    if len(shared) < 2:
        raise ScheduleError("autotune", f"{op.name} has no two loops around all of its statements")
    sizes = [room.choose("time", _TIME), *(room.choose(f"tile_{n}", _TILES) for n in range(len(shared) - 1))]
    for step in p.plan_time_tile(room.s.state, op.name, shared[0], shared[1:], sizes, shape):
        tiles = room.s.apply(step)
    room.s.require_legal(f"time tiles of {op.name}")
    if room.target.cores > 1:
        _share_tiles(room, op, tiles)
    _vectorize(room, op)


def _share_tiles(room: Room, op: HybridOp, tiles: tuple[str, ...]) -> None:
    """Run tiles in parallel: along an axis, or in wavefronts."""
    for tile in tiles:
        if room.s.attempt(lambda axis=tile: room.s[op.name].parallel(axis)):  # type: ignore[misc]
            return
    room.s.attempt(lambda: _apply(room, p.plan_wavefront(room.s.state, op.name, tiles[:2])))


def _apply(room: Room, steps: tuple[Primitive, ...]) -> None:
    for step in steps:
        room.s.apply(step)


def _declared(room: Room, op: HybridOp) -> None:
    """The loops as they are, in vectors and in parallel where that is legal; without vectors some rows side by side.

    Sums over the rows of a matrix take row by row, so that their results make vectors.
    """
    _sum_by_rows(room, op)
    if room.target.cores > 1:
        _share_columns(room, op)
    _vectorize(room, op)
    _run_beside(room, op)
    if room.target.cores > 1:
        _share(room, op)


def _share(room: Room, op: HybridOp) -> None:
    """Run the first loop in parallel, or what is long inside of loops that must wait, as that over time."""
    loops, stage, ranges = room.s[op.name], room.s.state.stages[op.name], room.s.state.axis_ranges(op.name)
    extents = {axis: constant(ranges[axis].extent) for axis in stage.leaves}
    places = [[axis for axis in place if extents[axis] != 1] for place in stage.places.values()]
    if stage.leaves and extents[stage.leaves[0]] != 1 and room.s.attempt(partial(loops.parallel, stage.leaves[0])):
        return
    shared = set[str]()
    for place in sorted(places, key=len, reverse=True):
        points = prod(extents[axis] or _SHARED for axis in place[1:])
        if points >= _SHARED and shared.isdisjoint(place):
            shared.update(next(([axis] for axis in place[:-1] if room.s.attempt(partial(loops.parallel, axis))), []))


def _share_columns(room: Room, op: HybridOp) -> None:
    """Give each thread some columns of all rows, where rows have to wait, as updates at places that data say."""
    loops, stage, ranges = room.s[op.name], room.s.state.stages[op.name], room.s.state.axis_ranges(op.name)
    cores = room.target.cores
    for place in sorted({place for place in stage.places.values() if len(place) > 1}):
        extents = [constant(ranges[axis].extent) or 1 for axis in place]
        if prod(extents) < _SHARED or extents[-1] < _COLUMNS * cores:
            continue
        if all(waits(room, op.name, axis) for axis, extent in zip(place[:-1], extents) if extent != 1):
            room.s.attempt(partial(_columns_apart, loops, place, cores))


def _columns_apart(loops: Stage, place: Sequence[str], cores: int) -> None:
    outer, inner = loops.split(place[-1], nparts=cores)
    loops.reorder(outer, *place[:-1], inner)
    loops.parallel(outer)


def _sum_by_rows(room: Room, op: HybridOp) -> None:
    """Take the loops apart that start a result and sum it up, and add some rows to all results in turn."""
    places = dict(room.s.state.stages[op.name].places)
    sums = [
        (starts[0], path[-2], path[-1])
        for path in places.values()
        if len(path) > 1
        and _lies_by_rows(op, path[-1], path[-2])
        and len(starts := [name for name, other in places.items() if other == path[:-1]]) == 1
    ]
    jam = room.choose("jam", (1, 2, 4, 8), _JAM) if sums else 0
    for start, column, row in sums:
        room.s.attempt(partial(_by_rows, room.s[op.name], start, column, row, jam))


def _by_rows(loops: Stage, start: str, column: str, row: str, jam: int) -> None:
    _, own = loops.fission(column, after=start)
    outer, inner = loops.split(row, factor=jam, tail="peel")
    loops.reorder(outer, own, inner)
    loops.unroll(inner)
    loops.vectorize(own)


def _lies_by_rows(op: HybridOp, row: str, column: str) -> bool:
    """Whether the loop over `row` reads a matrix whose columns lie side by side, and none whose rows do."""
    loops = [s.body for s in walk(op.body) if isinstance(s, For) and s.var.name == row]
    exprs = [e for body in loops for e in stmt_exprs(body)]
    loads = [node for e in exprs for node in walk_expr(e) if isinstance(node, Load) and node.index]
    along = [(variables(load.index[-1]), frozenset[str]().union(*map(variables, load.index))) for load in loads]
    by_rows = any(column in last and row in moved and row not in last for last, moved in along)
    return by_rows and not any(row in last and column in moved for last, moved in along)


def _vectorize(room: Room, op: HybridOp) -> None:
    """Run the innermost loop of every statement in vectors, where that is legal and has no other loop inside.

    Sums of integers are made of vectors, too.
    """
    loops, stage, found = room.s[op.name], room.s.state.stages[op.name], sources(op)
    around = {axis for place in stage.places.values() for axis in place[:-1]}
    own: dict[str, list[Source]] = {}
    for name, place in stage.places.items():
        if place and place[-1] not in around:
            own.setdefault(place[-1], []).append(found[stage.strands[name].source])
    for axis, statements in own.items():
        steady = [source for source in statements if _rewrites(source, axis)]
        if any(_is_sum(source, axis, room.s.state.strict) for source in steady):
            loops.pragma(axis, REDUCE_TREE)
        elif not steady:
            room.s.attempt(partial(loops.vectorize, axis))


def _is_sum(source: Source, axis: str, strict: bool) -> bool:
    """Whether a statement adds up what lies side by side along a loop, in an order that is free."""
    is_free = dtypes.info(source.store.buffer.dtype).is_integer or not strict
    loads = [node for node in walk_expr(source.store.value) if isinstance(node, Load)]
    moved = [load for load in loads if any(axis in variables(index) for index in load.index)]
    return bool(source.reducer) and is_free and bool(moved) and all(_lies_along(load, axis) for load in moved)


def _lies_along(load: Load, axis: str) -> bool:
    form = affine(load.index[-1])
    return form is not None and form.get(axis) == 1 and all(axis not in variables(i) for i in load.index[:-1])


def _rewrites(source: Source, axis: str) -> bool:
    """Whether all rounds of a loop write one element: no vectors can be made of them."""
    used = frozenset[str]().union(*map(variables, source.store.index))
    is_new = axis in source.scopes.get(source.store.buffer.name, ())
    has_loads = any(isinstance(node, Load) for index in source.store.index for node in walk_expr(index))
    return axis in source.axes and axis not in used and not is_new and not has_loads


def _run_beside(room: Room, op: HybridOp) -> None:
    """Run some rows side by side where elements of a row wait for each other: the waits of one are filled by others."""
    stage = room.s.state.stages[op.name]
    places, ranges = {*stage.places.values()}, room.s.state.axis_ranges(op.name)
    axes = places.pop() if len(places) == 1 else ()
    if (
        len(axes) < 2
        or axes[-1] in {*stage.annotations, *stage.pragmas}
        or (constant(ranges[axes[-2]].extent) or BESIDE) < BESIDE
    ):
        return
    rows = room.choose("beside", (1, 2, BESIDE, 8), BESIDE)

    def apply() -> None:
        loops = room.s[op.name]
        outer, inner = loops.split(axes[-2], rows, tail="peel")
        loops.reorder(outer, axes[-1], inner)
        loops.unroll(inner)

    room.s.attempt(apply)
