"""Tiles that outlive one iteration: rolling buffers, double buffers, and the folded memory that holds them.

A rolling buffer keeps the rows that the next iteration needs again, and computes only the new ones. A double buffer
is filled one iteration ahead. Both live outside the loop at which their stage is computed, and reuse memory; that no
value is overwritten before its last use is proven from the accesses (polyhedral.folding).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce

from tensorlang.errors import BadArgument
from tensorlang.ir.expr import Binary, Const, Expr, Var, binary, substitute, variables
from tensorlang.ir.linear import linear
from tensorlang.ir.simplify import simplify
from tensorlang.ir.stmt import INDEX
from tensorlang.polyhedral.footprint import Box
from tensorlang.polyhedral.statement import Access, Statement
from tensorlang.schedule.axis_range import AxisRange, constant, simple
from tensorlang.schedule.derive.plans import LoopPlan, StagePlan, plan_all


def only_new(
    stage: str, loop: str, reach: AxisRange, boxes: Sequence[Box | None], values: Sequence[Expr]
) -> tuple[list[Expr], tuple[int, ...]]:
    """The guard that leaves out of a tile what the iteration before has computed, and the modulus of every dimension.

    `boxes` are the tiles by dimension, `values` the elements in them. The modulus is 0 where the tile stays in place.
    Raises BadArgument when a tile does not move evenly with the loop.
    """
    new: list[Expr] = []
    moduli: list[int] = []
    for box, value in zip(boxes, values, strict=True):
        step = 0 if box is None else _step(stage, loop, box)
        size = None if box is None else constant(box.size)
        if box is None or step == 0:
            moduli.append(0)
            continue
        if size is None:
            raise BadArgument("", f"a rolling buffer of {stage} needs a constant tile, and its size depends on sizes")
        moduli.append(size)
        local = binary("sub", value, box.base)
        new.append(binary("ge", local, size - step) if step > 0 else binary("lt", local, -step))
    first = binary("eq", Var(loop, INDEX), reach.lower)
    return [reduce(partial(binary, "or"), [first, *new])], tuple(moduli)


def _step(stage: str, loop: str, box: Box) -> int:
    """By how much a tile moves from one iteration of a loop to the next."""
    moved = substitute(box.base, {loop: binary("add", Var(loop, INDEX), 1)})
    step = simplify(binary("sub", moved, box.base), {})
    if not isinstance(step, Const):
        raise BadArgument("", f"the tile of {stage} does not move evenly with the loop {loop}: its base is {box.base}")
    return int(step.value)


def new_around(
    readers: Collection[str], prefix: Sequence[LoopPlan], stages: Mapping[str, StagePlan]
) -> tuple[Expr, ...]:
    """When an iteration of some loops, in which stages read another, computes anything new of any of these."""
    names = {loop.name for loop in prefix}
    needs: list[Expr] = []
    for reader in readers:
        plan = stages[reader]
        around = (*plan.prefix, *plan_all(plan))
        inner = {loop.name: loop.range for loop in around if loop.name not in names}
        found = [test for test in (_somewhere(test, inner) for test in plan.new) if test is not None]
        if not found:
            return ()
        needs.append(reduce(partial(binary, "and"), found))
    return (reduce(partial(binary, "or"), needs),) if needs else ()


def _somewhere(test: Expr, inner: Mapping[str, AxisRange]) -> Expr | None:
    """What holds wherever a test holds for some values of inner loops, without these; None where that is not seen."""
    if not variables(test) & set(inner):
        return test
    match test:
        case Binary(op="or", a=a, b=b):
            either = _somewhere(a, inner), _somewhere(b, inner)
            return None if either[0] is None or either[1] is None else binary("or", *either)
        case Binary(op="ge" | "lt") if (found := linear(binary("sub", test.a, test.b), inner)) is not None:
            most, factors = found
            for name, factor in factors.items():
                last = binary("sub", inner[name].upper, 1)
                end = last if (factor > 0) == (test.op == "ge") else inner[name].lower
                most = binary("add", most, binary("mul", end, factor))
            return binary(test.op, simple(most), 0)
    return None


def tiles_ahead(loop: str, count: int) -> dict[str, Expr]:
    """What the loop stands for in a stage that is computed some iterations before its tile is read."""
    return {loop: binary("add", Var(loop, INDEX), count)}


def _in_place_of(access: Access, arrays: Mapping[str, Expr]) -> Access:
    """An access to a double buffer, with the number of the tile in front of its index."""
    if access.array not in arrays or access.index is None:
        return access
    return replace(access, index=(arrays[access.array], *access.index))


def with_tile(statement: Statement, loop: str, reach: AxisRange, arrays: Sequence[str], ahead: int) -> Statement:
    """A statement whose accesses to some double buffers name the tile: that of its loop, or a later one."""
    at: Expr = binary("sub", Var(loop, INDEX), reach.lower)
    tile = simplify(binary("add", at, ahead), {})
    tiles = dict.fromkeys(arrays, tile)
    return replace(
        statement,
        writes=tuple(_in_place_of(w, tiles) for w in statement.writes),
        reads=tuple(_in_place_of(r, tiles) for r in statement.reads),
    )
