"""Bulk tensor copies: which arrays are filled so, and the statements that one thread runs in place of a stage's loops.

Groups, and where threads wait for them, are those of asynchronous copies (lowering.asynchronous): a group is counted by
a memory barrier, in use in turn, instead of by each thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product

from tensorlang.errors import InternalError, TargetError
from tensorlang.ir.expr import Const, Expr, Var, binary, substitute, variables
from tensorlang.ir.stmt import INDEX, BoxCopy, Seq, Stmt
from tensorlang.lowering.storage import Storage
from tensorlang.polyhedral.nest import Leaf, Loop, Tree, leaves, paths, sequence, times
from tensorlang.polyhedral.nest import Sequence as Children
from tensorlang.polyhedral.statement import Statement
from tensorlang.schedule.axis_range import simple
from tensorlang.schedule.boxes import boxed_tile
from tensorlang.schedule.derive.plans import BoxedTile, Derived
from tensorlang.schedule.state import ScheduleState
from tensorlang.target.spec import Target
from tensorlang.te.operation import buffers


def copied_in_bulk(state: ScheduleState, target: Target) -> frozenset[str]:
    """The arrays that a schedule wants copied in bulk, where the target can: NVIDIA's from sm_90, the interpreter."""
    if not target.can.bulk_copies:
        return frozenset()
    asked = (name for name, stage in state.stages.items() if stage.storage.in_bulk)
    return frozenset(b.name for name in asked for b in buffers(state.program[name]))


def with_boxes(state: ScheduleState, derived: Derived, wanted: frozenset[str]) -> Derived:
    """The schedule with the loops of stages that are copied in bulk gone: each is a statement of the loops around it.

    Raises BadArgument for a tile that has no boxes (any more), and TargetError for a stage without a place to wait.
    """
    waiting = sorted(wanted - derived.barriers.keys())
    if waiting:
        raise TargetError(
            f"bulk copies of {waiting[0]} run ahead of the tile that is read, and nothing says how far, or no barrier "
            f"in its loop is for them alone: s[{waiting[0]!r}].pipeline(stages), or leave bulk_copy out"
        )
    if not wanted:
        return derived
    boxes = {
        number: boxed_tile(state, derived, statement.stage)
        for number, statement in enumerate(derived.scop.statements)
        if any(access.array in wanted for access in statement.writes)
    }
    if len(boxes) != len(wanted):
        raise InternalError(f"stages that are copied in bulk have {len(boxes)} statements, not one each")
    around = dict(paths(derived.tree))
    statements = list(derived.scop.statements)
    for number, tile in boxes.items():
        statements[number] = _of_tile(statements[number], tile, state, derived, around[number])
    tree = _without_loops(derived.tree, {number: set(statements[number].loops) for number in boxes})
    time = dict(times(tree))
    timed = tuple(replace(s, time=time[number]) for number, s in enumerate(statements))
    return replace(derived, scop=replace(derived.scop, statements=timed), tree=tree, boxes=boxes)


def _of_tile(
    statement: Statement, tile: BoxedTile, state: ScheduleState, derived: Derived, path: tuple[Loop, ...]
) -> Statement:
    """The statement that copies a tile: once for each that has an element of the stage's array."""
    own = {loop.name for loop in path if loop.stage == statement.stage}
    outer = tuple(name for name in statement.loops if name not in own)
    (array,) = buffers(state.program[statement.stage])
    domain = [test for test in statement.domain if not variables(test) & own]
    ahead = _ahead(statement, {})
    for base, side, extent in zip(derived.plans[tile.array].base, tile.sides, array.shape, strict=True):
        first = simple(substitute(base, ahead))
        domain += [binary("lt", first, extent), binary("gt", binary("add", first, side), 0)]
    known = [test for test in map(simple, domain) if not isinstance(test, Const)]
    return Statement(
        statement.name,
        statement.stage,
        statement.role,
        outer,
        tuple(known),
        (),
        (),
        (),
        ahead=statement.ahead,
        ahead_by=statement.ahead_by,
    )


def _ahead(statement: Statement, values: Mapping[str, Expr]) -> dict[str, Expr]:
    """The loops of a statement, of which one stands for a later tile."""
    found: dict[str, Expr] = {name: Var(name, INDEX) for name in statement.loops}
    found |= values
    if statement.ahead:
        found[statement.ahead] = binary("add", found[statement.ahead], statement.ahead_by)
    return found


def _without_loops(tree: Tree, kept: Mapping[int, set[str]]) -> Tree:
    """The tree with nests that hold such a statement only as that statement, below the loops that it keeps."""
    match tree:
        case Leaf():
            return tree
        case Loop():
            inside = set(leaves(tree))
            if len(inside) == 1 and inside <= kept.keys() and tree.name not in kept[next(iter(inside))]:
                return Leaf(next(iter(inside)))
            return replace(tree, body=_without_loops(tree.body, kept))
        case Children():
            return sequence([_without_loops(child, kept) for child in tree.children])


def box_copies(number: int, derived: Derived, values: Mapping[str, Expr], storage: Storage) -> Stmt:
    """The copies of one tile, by the number of its statement, for given values of the loops around it."""
    tile, own = derived.boxes[number], _ahead(derived.scop.statements[number], values)
    plan = derived.plans[tile.array]
    first = tuple(substitute(base, own) for base in plan.base)
    buffer, local = storage.place(tile.array, first, own, {})
    source = storage.plans[tile.source.name].buffer
    corner = [simple(substitute(part, own)) for part in tile.corner]
    lead = len(local) - len(tile.box)
    copies = []
    for offset in _offsets(tile):
        at = (*local[:lead], *(simple(binary("add", i, o)) for i, o in zip(local[lead:], offset, strict=True)))
        where = tuple(simple(binary("add", i, o)) for i, o in zip(corner, offset, strict=True))
        copies.append(BoxCopy(buffer, at, source, where, tile.box, derived.barriers[tile.array]))
    return copies[0] if len(copies) == 1 else Seq(tuple(copies))


def _offsets(tile: BoxedTile) -> Iterator[tuple[int, ...]]:
    """Where the boxes of a tile begin, in the order in which they lie in memory."""
    sides = tile.sides[-len(tile.box) :]
    return product(*(range(0, side, box) for side, box in zip(sides, tile.box, strict=True)))
