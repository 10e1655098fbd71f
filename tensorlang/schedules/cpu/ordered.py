"""Programs of ordered statements: the order that isl proposes, tiles of permutable loops, tiles in time."""

from __future__ import annotations

from functools import partial

from tensorlang.errors import ScheduleError
from tensorlang.ir.expr import Load, variables
from tensorlang.ir.expr import walk as walk_expr
from tensorlang.ir.stmt import For, stmt_exprs, walk
from tensorlang.polyhedral.ordered import shared_prefix
from tensorlang.schedule import primitives as p
from tensorlang.schedule.axis_range import constant
from tensorlang.schedule.primitive import Primitive
from tensorlang.schedule.proposals.auto_order import auto_order
from tensorlang.schedule.stage import Stage
from tensorlang.schedules.room import Form, Room
from tensorlang.te.operation import HybridOp

_TILES = (8, 16, 32, 64, 128, 256)  # the smallest first: what is legal for many tiles is legal for few
_TIME = (2, 4, 8, 16, 32)
_JAM = 4
"""Rows that are added to results at a time."""
_BESIDE = 4
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
    _vectorize(room, op)
    _run_beside(room, op)
    leaves = room.s.state.stages[op.name].leaves
    if room.target.cores > 1 and leaves:  # statements need no loop
        room.s.attempt(lambda: room.s[op.name].parallel(leaves[0]))


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
    """Run the innermost loop of every statement in vectors, where that is legal and has no other loop inside."""
    places = [place for place in room.s.state.stages[op.name].places.values() if place]
    around = {axis for place in places for axis in place[:-1]}
    for axis in dict.fromkeys(place[-1] for place in places if place[-1] not in around):
        room.s.attempt(lambda inner=axis: room.s[op.name].vectorize(inner))  # type: ignore[misc]


def _run_beside(room: Room, op: HybridOp) -> None:
    """Run some rows side by side where elements of a row wait for each other: the waits of one are filled by others."""
    stage = room.s.state.stages[op.name]
    places, ranges = {*stage.places.values()}, room.s.state.axis_ranges(op.name)
    axes = places.pop() if len(places) == 1 else ()
    if len(axes) < 2 or axes[-1] in stage.annotations or (constant(ranges[axes[-2]].extent) or _BESIDE) < _BESIDE:
        return
    rows = room.choose("beside", (1, 2, _BESIDE, 8), _BESIDE)

    def apply() -> None:
        loops = room.s[op.name]
        outer, inner = loops.split(axes[-2], rows, tail="peel")
        loops.reorder(outer, axes[-1], inner)
        loops.unroll(inner)

    room.s.attempt(apply)
