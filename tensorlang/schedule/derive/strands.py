"""The statement that a strand of a hybrid stage is: its domain, accesses and place, over the loops around it now.

It depends on the strand alone, not on the rest of the schedule: a step changes few strands, the others are remembered.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from tensorlang.ir.expr import Expr, Var, binary, substitute
from tensorlang.ir.index import to_index
from tensorlang.ir.simplify import simplify
from tensorlang.ir.stmt import INDEX
from tensorlang.polyhedral.ordered import Source, first_inside, sources
from tensorlang.polyhedral.statement import Statement
from tensorlang.schedule.derive.statements import Place, Values, is_true, ordered_statement
from tensorlang.schedule.relation import Relation, backward, implied
from tensorlang.schedule.state import Strand, hybrid_ranges
from tensorlang.te.operation import HybridOp, buffers
from tensorlang.te.program import local_arrays


@lru_cache(maxsize=8192)
def strand_statement(
    op: HybridOp, stage: str, name: str, strand: Strand, around: tuple[str, ...], strict: bool
) -> Statement:
    """Return the statement of a strand inside the loops `around`; its domain begins with two bounds per loop."""
    source = sources(op)[strand.source]
    place = _place(op, stage, first_inside(op)[strand.source], strand.relations, strand.where, around)
    return ordered_statement(stage, name, source, place, _written(op), strict)


@lru_cache(maxsize=8192)
def _place(
    op: HybridOp,
    stage: str,
    inside: str,
    relations: tuple[Relation, ...],
    where: tuple[Expr, ...],
    around: tuple[str, ...],
) -> Place:
    """Where statements are that had the same loops around them as `inside`."""
    source = sources(op)[inside]
    reach = hybrid_ranges(op, inside, relations)
    loops = {axis: f"{stage}.{axis}" for axis in around}
    leaf: dict[str, Expr] = {axis: Var(loop, INDEX) for axis, loop in loops.items()}
    own = source.axes
    free = implied(own, relations)
    values, guards = backward(relations, reach, leaf, free)
    bounds = {axis: reach[axis].holds(leaf[axis]) for axis in around}
    limits = {loop: reach[axis].ends for axis, loop in loops.items()}
    axes = {axis: simplify(values[axis], limits) for axis in own}
    parts = [substitute(c, axes) for c in where]
    placing = [*(c for axis in around if axis not in free for c in bounds[axis]), *guards, *parts]
    exact = [*guards, *_declared_bounds(source, axes), *parts]
    domain = [g for g in (simplify(g, limits) for g in exact) if not is_true(g)]
    first = tuple(c for axis in around for c in bounds[axis])
    return Place(tuple(loops.values()), Values(axes, limits), first, tuple(domain), tuple(placing))


@lru_cache(maxsize=512)
def _written(op: HybridOp) -> frozenset[str]:
    """The arrays that an operation writes."""
    return frozenset(b.name for b in (*buffers(op), *local_arrays(op)))


def _declared_bounds(source: Source, axes: Mapping[str, Expr]) -> list[Expr]:
    """The bounds of the loops as declared, in terms of the loops of now."""
    found = []
    for loop in source.loops:
        at = axes[loop.var.name]
        found.append(binary("ge", at, substitute(to_index(loop.lower), dict(axes))))
        found.append(binary("lt", at, substitute(to_index(loop.upper), dict(axes))))
    return found
