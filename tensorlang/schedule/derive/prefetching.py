"""What a prefetch brings closer: a box of elements, as a statement of its own at the start of a loop's body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from tensorlang.dataclass import dataclass
from tensorlang.errors import BadArgument
from tensorlang.ir.expr import Const, Expr, Load, Var, binary, rewrite, substitute, to_text, variables, walk
from tensorlang.ir.stmt import INDEX
from tensorlang.polyhedral.footprint import Box, Reader, needed
from tensorlang.polyhedral.statement import Role, Statement
from tensorlang.schedule.axis_range import AxisRange, constant
from tensorlang.schedule.derive.plans import PrefetchPlan, StagePlan, plan_all
from tensorlang.schedule.state import Prefetched, ScheduleState
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import PlaceholderOp

Around = Sequence[tuple[str, AxisRange]]
"""Loops by name, outermost first, and their ranges."""


@dataclass(frozen=True, slots=True)
class Prefetching:
    """The statements that prefetch, what they bring by number, and those at the start of the body of a stage's loop."""

    statements: tuple[Statement, ...] = ()
    plans: Mapping[int, PrefetchPlan] = field(default_factory=dict)
    places: Mapping[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)


def prefetches(state: ScheduleState, stages: Mapping[str, StagePlan], statements: Sequence[Statement]) -> Prefetching:
    """The prefetches that are asked for in the loops of stages; their numbers go on from those of `statements`."""
    found = Prefetching()
    known = {loop.name: loop.range for plan in stages.values() for loop in plan_all(plan)}
    for plan in stages.values():
        own = [statements[k] for k in (*plan.statements, *plan.by_strand.values())]
        for asked in plan.stage.prefetched:
            wish, around = _resolved(state, stages, plan, asked)
            rank = len(state.program.buffers[asked.tensor].shape)
            given = frozenset(op.name for op in state.program.ops if isinstance(op, PlaceholderOp))
            made, what = plan_prefetch(plan.stage.name, wish, around, own, known, rank, state.sizes, given)
            number, place = len(statements) + len(found.plans), (plan.stage.name, asked.axis)
            found = Prefetching(
                (*found.statements, replace(made, name=f"{made.name}{len(found.plans)}")),
                {**found.plans, number: what},
                {**found.places, place: (*found.places.get(place, ()), number)},
            )
    return found


def _resolved(
    state: ScheduleState, stages: Mapping[str, StagePlan], plan: StagePlan, asked: Prefetched
) -> tuple[Prefetched, Around]:
    """A prefetch by the names of the loops around it, and these; BadArgument where steps have taken its place away."""
    stage = plan.stage
    if asked.axis not in stage.leaves:
        raise BadArgument("", f"{stage.name} prefetches in its loop {asked.axis}, which would be gone")
    if asked.tensor not in state.program.buffers:
        raise BadArgument("", f"{stage.name} prefetches {asked.tensor}, which would be no array any more")
    loops = plan.path(asked.axis)
    names = {loop.axis: loop.name for loop in loops}
    for axis in (asked.along, asked.shared):
        if axis and axis not in names:
            raise BadArgument("", f"{stage.name} prefetches in its loop {asked.axis}, which is not inside {axis}")
    wish = replace(asked.renamed(names), axis=asked.axis)
    maker = stages.get(state.program.producer[asked.tensor])
    if maker is not None and any(loop.name == wish.along for loop in maker.prefix):
        where = f"inside the loop {asked.along} of {stage.name}"
        raise BadArgument("", f"{asked.tensor} is computed {where}: there is nothing to prefetch yet")
    return wish, [(loop.name, loop.range) for loop in loops]


def plan_prefetch(
    stage: str,
    asked: Prefetched,
    loops: Around,
    statements: Sequence[Statement],
    ranges: Mapping[str, AxisRange],
    rank: int,
    sizes: frozenset[str],
    given: frozenset[str] = frozenset(),
) -> tuple[Statement, PrefetchPlan]:
    """Return the statement that prefetches in the body of the innermost of `loops`, and what it does.

    `statements` are those of the stage, `ranges` those of all loops, `rank` that of the array. What lies where arrays
    that are `given` say is looked up there.
    Raises BadArgument when none of the statements in the loop reads the array.
    """
    names = tuple(name for name, _ in loops)
    inside = [s for s in statements if s.loops[: len(names)] == names]
    readers: list[Reader] = []
    for s in inside:
        inner = tuple((n, ranges[n].lower, ranges[n].upper) for n in s.loops[len(names) :])
        readers += [Reader(r.index, inner) for r in s.reads if r.array == asked.tensor]
    if not readers:
        raise BadArgument(
            "", f"{stage} does not read {asked.tensor} in its loop {asked.axis}: nothing to prefetch there"
        )
    around = [(name, reach.lower, reach.upper) for name, reach in loops]
    later = {asked.along: binary("add", Var(asked.along, INDEX), asked.offset)}
    boxes = [
        _looked_up(readers, d, later, given) if box is None else Box(substitute(box.base, later), box.size)
        for d, box in enumerate(needed(readers, around, rank, sizes))
    ]
    if asked.shared:
        boxes = _part(stage, asked, dict(loops)[asked.shared], boxes)
    name = f"{stage}.prefetch"
    domain = _shared_guards(inside, {*names, *sizes})
    made = Statement(
        name, name, Role.PREFETCH, names, domain, (), (), (), ahead=inside[0].ahead, ahead_by=inside[0].ahead_by
    )
    return made, PrefetchPlan(asked.tensor, tuple(boxes), asked.level)


def _looked_up(readers: Sequence[Reader], d: int, later: Mapping[str, Expr], given: frozenset[str]) -> Box | None:
    """One element where an array says which, the same for all readers; that array is read inside its own bounds."""
    first = [(r.index or (), {name: lower for name, lower, _ in r.inner}) for r in readers]
    places = {to_text(place): place for index, lower in first for place in [substitute(index[d], lower)] if index}
    reads = [node for place in places.values() for node in walk(place) if isinstance(node, Load)]
    if len(places) != 1 or not reads or any(not _is_given(read, given) for read in reads):
        return None

    def inside(node: Expr) -> Expr | None:
        if not isinstance(node, Load):
            return None
        bounds = zip(node.index, node.buffer.shape, strict=True)
        clamped = (binary("max", binary("min", i, binary("sub", n, 1)), 0) for i, n in bounds)
        return Load(node.buffer, tuple(clamped))

    (place,) = places.values()
    return Box(rewrite(substitute(place, later), inside), Const(1, INDEX))


def _is_given(read: Load, given: frozenset[str]) -> bool:
    """Whether an array is there before anything runs, has elements, and is read at places that no array says."""
    plain = not any(isinstance(node, Load) for index in read.index for node in walk(index))
    return plain and read.buffer.name in given and all((extent_of(n) or 0) > 0 for n in read.buffer.shape)


def _part(stage: str, asked: Prefetched, reach: AxisRange, boxes: Sequence[Box | None]) -> list[Box | None]:
    """What one iteration of the loop `shared` prefetches: a part of the first dimension that can be shared out."""
    if any(box is None or asked.shared in variables(box.base) for box in boxes):
        raise BadArgument(
            "", f"the iterations of {asked.shared} do not read the same of {asked.tensor} in {stage}: nothing to share"
        )
    shares, sizes = constant(reach.extent), [None if box is None else constant(box.size) for box in boxes]
    if shares is None or None in sizes:
        raise BadArgument(
            "", f"sharing out a prefetch of {asked.tensor} needs known sizes of loops and of what is read"
        )
    parts = list(boxes)
    for d, (box, size) in enumerate(zip(boxes, sizes, strict=True)):
        if box is not None and size is not None and size > 1:
            each = -(-size // shares)
            place = binary("mul", binary("sub", Var(asked.shared, INDEX), reach.lower), each)
            parts[d] = Box(binary("add", box.base, place), Const(each, INDEX))
            break
    return parts


def _shared_guards(statements: Sequence[Statement], known: set[str]) -> tuple[Expr, ...]:
    """The conditions on loops around that all statements have: nothing is prefetched where nothing runs."""
    others = [set(map(to_text, s.domain)) for s in statements]
    return tuple(g for g in statements[0].domain if variables(g) <= known and all(to_text(g) in o for o in others))
