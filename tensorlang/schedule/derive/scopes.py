"""Where the local arrays of hybrid operations live: inside which loops, and in how many copies."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

from tensorlang.ir.expr import Expr, Var, same, variables
from tensorlang.ir.simplify import simplify
from tensorlang.ir.stmt import INDEX
from tensorlang.polyhedral.footprint import Box, Reader, needed
from tensorlang.polyhedral.ordered import first_inside, shared_prefix
from tensorlang.polyhedral.statement import Statement
from tensorlang.schedule.axis_range import AxisRange, constant
from tensorlang.schedule.relation import Relation, made_values
from tensorlang.schedule.state import ScheduleState, StageState, hybrid_ranges
from tensorlang.te.operation import HybridOp


def loops_of_scope(
    op: HybridOp, state: ScheduleState, stage: StageState, users: Sequence[str], scope: Collection[str]
) -> tuple[str, ...]:
    """The loops around some statements, outermost first, of which one iteration holds all that a scope holds.

    `scope` names loops of the operation: theirs are the iterations that have an array of their own. A loop made of
    others, or not in the same way for all statements, would lose what must last longer.
    """
    found: list[str] = []
    path = shared_prefix(*(stage.places[n] for n in users))
    known = {*scope, *state.sizes}
    strands = {(first_inside(op)[s.source], s.relations): None for s in (stage.strands[n] for n in users if path)}
    values = [_values(op, *strand) for strand in strands]
    for axis in path:
        raw = [v.get(axis, Var(axis, INDEX)) for v in values]
        at = simplify(raw[0])
        if not variables(at) <= known or not all(same(a, raw[0]) or same(simplify(a), at) for a in raw[1:]):
            break
        found.append(axis)
    return tuple(found)


@lru_cache(maxsize=4096)
def _values(op: HybridOp, inside: str, relations: tuple[Relation, ...]) -> dict[str, Expr]:
    """The loops that relations make, in terms of those of the operation around a statement."""
    return made_values(relations, hybrid_ranges(op, inside, relations))


def copies(
    statements: Sequence[Statement],
    around: Sequence[str],
    hulls: Mapping[str, tuple[Expr, Expr]],
    known: Mapping[str, AxisRange],
    sizes: frozenset[str],
) -> dict[str, tuple[Expr, Expr]]:
    """The loops of a scope that the loops `around` do not decide, each with the first value and the number of copies.

    `hulls` gives the (lower, extent) of the loops of the scope; `known` the ranges of all loops around the statements.
    """
    points = [dict(s.point) for s in statements]
    free = [n for n in hulls if not _decided([p[n] for p in points], {*around, *sizes})]
    readers = [
        Reader(tuple(p[n] for n in free), tuple((a, known[a].lower, known[a].upper) for a in s.loops[len(around) :]))
        for s, p in zip(statements, points, strict=True)
    ]
    tile = [(a, known[a].lower, known[a].upper) for a in around]
    boxes = needed(readers, tile, len(free), sizes) if around else [None] * len(free)
    return {n: _smaller(box, hulls[n]) for n, box in zip(free, boxes, strict=True)}


def _decided(values: Sequence[Expr], names: Collection[str]) -> bool:
    return variables(values[0]) <= set(names) and all(same(v, values[0]) for v in values)


def _smaller(box: Box | None, hull: tuple[Expr, Expr]) -> tuple[Expr, Expr]:
    """The box of a tile where it is surely smaller than all that there is."""
    part = constant(box.size) if box is not None else None
    whole = constant(hull[1])
    if box is None or part is None or (whole is not None and whole <= part):
        return hull
    return box.base, box.size
