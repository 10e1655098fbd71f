"""Consumers inside the loops of their producer: which iteration of those loops each point of a consumer belongs to.

A point is placed into the iteration that makes the last of its inputs. That it reads nothing earlier, and that every
point has a place, is proven afterwards for the whole schedule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import TypeAlias

from tensorlang.errors import BadArgument
from tensorlang.ir.affine import affine
from tensorlang.ir.expr import Expr, Load, Var, binary, substitute, to_text, variables
from tensorlang.ir.index import to_index
from tensorlang.ir.stmt import INDEX
from tensorlang.polyhedral.extract import guarded_loads
from tensorlang.schedule.axis_range import AxisRange, constant, simple, symbolic
from tensorlang.schedule.relation import made_values
from tensorlang.schedule.state import ScheduleState, StageState
from tensorlang.te.axis import Axis, AxisKind
from tensorlang.te.operation import ComputeOp
from tensorlang.te.program import read_buffers

Placement: TypeAlias = Mapping[str, Expr]
"""Loop -> its value, as an expression of the axes of a stage whose points are each in one iteration of it."""


def root_order(state: ScheduleState) -> list[str]:
    """The stages at the root in the order in which they run: program order, but for what is needed earlier.

    A stage that follows its producer may need others, which then come before that producer if they can.
    """
    program, stages = state.program, state.stages
    inside: dict[str, list[str]] = {}
    for name in stages:
        root = name
        while (attach := stages[root].attach) is not None:
            root = attach.stage
        inside.setdefault(root, []).append(name)
    home = {name: root for root, names in inside.items() for name in names}
    followed = {home[name] for name, stage in stages.items() if stage.attach is not None and stage.attach.after}
    done: dict[str, None] = {}
    begun: set[str] = set()

    def run(root: str, early: bool) -> None:
        begun.add(root)
        for name in inside[root] if early else ():
            for needed in dict.fromkeys(program.producer[b] for b in read_buffers(program[name])):
                if needed in home and home[needed] not in begun:
                    run(home[needed], early)
        done[root] = None

    for op in program.ops:
        if home.get(op.name) == op.name and op.name not in begun:
            run(op.name, early=op.name in followed)
    return list(done)


def own_placement(stage: StageState, known: Mapping[str, AxisRange], kinds: Mapping[str, AxisKind]) -> Placement:
    """Where the points of a stage at the root are in its own loops, those that reduce left out."""
    values = made_values(stage.relations, known)
    spatial = [axis for axis in stage.leaves if kinds[axis] is not AxisKind.REDUCE]
    return {f"{stage.name}.{axis}": values.get(axis, Var(axis, INDEX)) for axis in spatial}


def following_placement(
    op: ComputeOp, loops: Sequence[str], placements: Mapping[str, tuple[Sequence[Axis], Placement]]
) -> Placement:
    """Where the points of a consumer have all their inputs.

    `placements` gives, by array, the axes of the stage that makes it and where its points are.
    Raises BadArgument when an input is read at a place that the axes do not tell, or none is made in the loops.
    """
    found: dict[str, Expr] = {}
    for loop in loops:
        values: dict[str, Expr] = {}
        for load, is_guarded in _loads(op):
            axes, placement = placements.get(load.buffer.name, ((), {}))
            if loop in placement:
                last = [_last(op, part, axis, is_guarded, load) for part, axis in zip(load.index, axes, strict=True)]
                at = simple(substitute(placement[loop], {a.name: e for a, e in zip(axes, last, strict=True)}))
                values[to_text(at)] = at
        if not values:
            raise BadArgument("", f"{op.name} reads nothing that is made in one iteration of the loop {loop}")
        found[loop] = reduce(partial(binary, "max"), values.values())
    return found


def _loads(op: ComputeOp) -> Iterator[tuple[Load, bool]]:
    """The loads of an operation, and whether they run only under a condition."""
    for body in op.body:
        for load, conditions in guarded_loads(body):
            yield load, bool(conditions)


def _last(op: ComputeOp, index: Expr, axis: Axis, is_guarded: bool, load: Load) -> Expr:
    """The greatest value of an index over the reduce axes, within the array."""
    reduced = {a.name: a for a in op.reduce_axes}
    index, clamped = to_index(index), is_guarded
    used = variables(index) & reduced.keys()
    if used:
        form = affine(index)
        if form is None:
            raise BadArgument("", f"{op.name} reads {to_text(load)}: which of its elements comes last is not known")
        ends: dict[str, Expr] = {}
        for name in used:
            low, extent = symbolic(reduced[name].lower), symbolic(reduced[name].extent)
            ends[name] = low if form.get(name, 0) < 0 else simple(binary("sub", binary("add", low, extent), 1))
            clamped = clamped or constant(extent) is None
        index = simple(substitute(index, ends))
    if not clamped:
        return index
    first, extent = symbolic(axis.lower), symbolic(axis.extent)
    return binary("max", binary("min", index, simple(binary("sub", binary("add", first, extent), 1))), first)


def same_iteration(placement: Placement) -> list[Expr]:
    """The conditions under which a point belongs to the iteration that the loops are at."""
    return [binary("eq", value, Var(loop, INDEX)) for loop, value in placement.items()]
