"""What would be legal instead of a refused step: alternatives are applied and proven before they are offered.

Each idea is a few attempts, the smallest change first, of which the first legal one is offered. The search is bounded
by isl operations and by a number of tries, not by the clock, so that equal programs get equal answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import permutations
from math import prod
from typing import TypeAlias

from tensorlang.dataclass import dataclass
from tensorlang.dtypes import info
from tensorlang.errors import IllegalOrder, IllegalParallel, ScheduleError
from tensorlang.ir.expr import Load, walk
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.hyperplanes import band_dependences, most_negative
from tensorlang.polyhedral.ordered import sources
from tensorlang.schedule import order
from tensorlang.schedule.axis_range import constant
from tensorlang.schedule.check import is_legal
from tensorlang.schedule.derive import derive
from tensorlang.schedule.primitive import Primitive
from tensorlang.schedule.primitives.affine import TileBy
from tensorlang.schedule.primitives.annotate import Bind, Parallel, Vectorize
from tensorlang.schedule.primitives.assume import Assume
from tensorlang.schedule.primitives.atomic import Atomic
from tensorlang.schedule.primitives.distribute import Fission, FuseWith
from tensorlang.schedule.primitives.loops import Reorder, Split, nested
from tensorlang.schedule.primitives.placement import ComputeAt
from tensorlang.schedule.primitives.reduction import RFactor
from tensorlang.schedule.primitives.shift import Reverse, Shift
from tensorlang.schedule.primitives.time_tile import plan_time_tile, plan_wavefront
from tensorlang.schedule.proposals.draft import Draft, planned, replay, skewed, touched
from tensorlang.schedule.relation import BandRelation, FuseRelation, PartsRelation, SplitRelation, made_by
from tensorlang.schedule.state import ScheduleState, initial_state
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import HybridOp, PlaceholderOp
from tensorlang.te.program import Program

MOST = 4  # alternatives offered
TRIES = 24
OPERATIONS = 1_000_000  # of isl, for the whole search
CUTS = (SplitRelation, PartsRelation, FuseRelation, BandRelation)

Attempt: TypeAlias = Callable[[], Draft | None]  # may raise ScheduleError: then it is none
Idea: TypeAlias = Iterable[Attempt]


@dataclass(frozen=True)
class Refused:
    """A refused step, the state before it, and the steps that led there from the program as declared."""

    step: Primitive
    before: ScheduleState
    trace: Sequence[Primitive]
    original: Program


def repaired(refused: Refused, error: ScheduleError) -> ScheduleError:
    """Return the error with a search for legal alternatives to the step."""
    if not isinstance(error, IllegalOrder | IllegalParallel):
        return error
    return type(error)(error.asked, error.why, witness=error.witness, suggested=partial(_alternatives, refused, error))


def _alternatives(refused: Refused, error: ScheduleError) -> list[str]:
    if isinstance(error, IllegalOrder):
        return _proven(refused.before, _reordered(refused))
    others = error.suggested if isinstance(refused.step, Parallel | Vectorize | Bind) else ()
    return [*others, *_proven(refused.before, _parallelized(refused, error))]


def _proven(before: ScheduleState, ideas: Iterator[Idea]) -> list[str]:
    """The first legal attempt of each of the first ideas that have one."""
    found: list[str] = []
    tries = 0
    with suppress(isl.BudgetExceeded), isl.budget(OPERATIONS):
        for idea in ideas:
            for attempt in idea:
                tries += 1
                if tries > TRIES:
                    return found
                text = _legal_text(before, attempt)
                if text and text not in found:
                    found.append(text)
                    break
            if len(found) == MOST:
                break
    return found


def _legal_text(before: ScheduleState, attempt: Attempt) -> str:
    """The steps of an attempt that is legal and changes something; else nothing."""
    with suppress(ScheduleError, KeyError):
        draft = attempt()
        if draft is not None and draft.state != before and is_legal(draft.state):
            return draft.text()
    return ""


def _reordered(refused: Refused) -> Iterator[Idea]:
    """Other ways to what a step wanted that runs a statement too early."""
    before = refused.before
    match refused.step:
        case Reorder(stage, axes):
            yield [partial(_skewed_first, before, stage, axes), partial(_again, refused)]
            yield from _each(before, (Reorder(stage, other) for other in _other_orders(before, stage, axes)))
        case TileBy(stage, axes, _, sizes, _):
            yield [partial(_time_tiled, before, stage, axes, sizes), partial(_again, refused)]
        case FuseWith() as fuse:
            yield [partial(_shifted_first, before, fuse, second) for second in (True, False)]
            yield [partial(_reversed_first, before, fuse, second) for second in (True, False)]
        case Fission(stage, axis, _):
            body = order.find(before.stages[stage].order, axis).body
            children = [node if isinstance(node, str) else node.axis for node in body]
            yield from _each(before, (Fission(stage, axis, child) for child in children[:-1]))
        case Shift(stage, axis, by, statement):
            others = sorted((n for n in range(-4, 5) if n), key=lambda n: (abs(n - _number(by)), n))
            yield [partial(planned, before, (Shift(stage, axis, str(other), statement),)) for other in others]
        case ComputeAt(stage, _, _):
            yield from _each(before, _places(before, stage))
        case _:
            yield [partial(_again, refused)]


def _each(state: ScheduleState, steps: Iterable[Primitive]) -> Iterator[Idea]:
    return ([partial(planned, state, (step,))] for step in steps)


def _time_tiled(state: ScheduleState, stage: str, axes: tuple[str, ...], sizes: tuple[int, ...]) -> Draft | None:
    if _is_cut(state, stage, axes):
        return None
    return planned(state, plan_time_tile(state, stage, axes[0], axes[1:], sizes, "rectangular"))


def _wavefront(state: ScheduleState, stage: str, axes: tuple[str, str]) -> Draft:
    return planned(state, plan_wavefront(state, stage, axes))


def _number(text: str) -> int:
    return int(text) if text.lstrip("-").isdigit() else 0


def _places(state: ScheduleState, stage: str) -> Iterator[ComputeAt]:
    for user in state.program.consumers[stage]:
        for axis in state.stages[user].leaves if user in state.stages else ():
            yield ComputeAt(stage, user, axis)


def _other_orders(state: ScheduleState, stage: str, asked: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Other orders of the same loops, those that differ least from the one asked for first; not the present one."""
    present = tuple(a for a in nested(state.stages[stage], asked) if a in asked)
    rank = {axis: k for k, axis in enumerate(asked)}

    def apart(candidate: tuple[str, ...]) -> int:
        ranks = [rank[a] for a in candidate]
        return sum(x > y for k, x in enumerate(ranks) for y in ranks[k + 1 :])

    several = permutations(asked) if len(asked) <= 5 else iter(())
    return sorted((c for c in several if c not in (asked, present)), key=apart)


def _skewed_first(state: ScheduleState, stage: str, axes: tuple[str, ...]) -> Draft | None:
    """The same order after a skew."""
    band, draft = nested(state.stages[stage], axes), Draft(state)
    names = {} if _is_cut(state, stage, band) else skewed(draft, stage, band)
    if not names:
        return None
    draft.add(Reorder(stage, tuple(names.get(a, a) for a in axes)))
    return draft


def _is_cut(state: ScheduleState, stage: str, axes: Sequence[str]) -> bool:
    """Whether some loops are parts of loops: their hyperplanes take seconds to find."""
    cuts = [r for r in state.stages[stage].all_relations if isinstance(r, CUTS)]
    return any(a in made_by(r)[1] for r in cuts for a in axes)


def _again(refused: Refused) -> Draft | None:
    """All steps again, on loops that were skewed before they were split."""
    stage, axes = getattr(refused.step, "stage", None), touched(refused.step)
    if stage is None or stage not in refused.original.by_name or not axes:
        return None
    return replay(initial_state(refused.original), stage, (*refused.trace, refused.step)).skewed(axes)


def _fused(step: FuseWith, second: bool) -> tuple[str, str]:
    """One of the loops of a fusion, with its stage."""
    return (step.second or step.stage, step.other) if second else (step.stage, step.axis)


def _shifted_first(state: ScheduleState, step: FuseWith, second: bool) -> Draft | None:
    """The same fusion after one of the loops has been moved back by as many iterations as it comes too early."""
    fused, (made,) = step.apply(state)
    early = most_negative(band_dependences(derive(fused).scop, [f"{step.stage}.{made}"]), 0)
    if not early:
        return None
    return _fused_after(state, step, second, Shift(*_fused(step, second), str(-early), ""))


def _reversed_first(state: ScheduleState, step: FuseWith, second: bool) -> Draft:
    """The same fusion after one of the loops has been turned round."""
    return _fused_after(state, step, second, Reverse(*_fused(step, second)))


def _fused_after(state: ScheduleState, step: FuseWith, second: bool, first: Primitive) -> Draft:
    draft = Draft(state)
    (made,) = draft.add(first)
    draft.add(replace(step, other=made) if second else replace(step, axis=made))
    return draft


def _parallelized(refused: Refused, error: ScheduleError) -> Iterator[Idea]:
    """Other ways to run iterations at the same time."""
    before, step = refused.before, refused.step
    if not isinstance(step, Parallel | Vectorize | Bind):
        return
    stage, axis = step.stage, step.axis
    if error.witness is not None and error.witness.kind == "reduction":
        yield [partial(_factored, before, step)]
        yield [partial(planned, before, (Atomic(stage), step))]
    elif isinstance(step, Parallel):
        for pair in _neighbours(before, stage, axis):
            yield [partial(_wavefront, before, stage, pair)]
    for array in _index_arrays(before, stage):  # last: nobody proves it
        yield [partial(planned, before, (Assume("injective", array, None, None), step))]


def _factored(state: ScheduleState, step: Parallel | Vectorize | Bind) -> Draft:
    """The asked step on the partial results of a reduction, along the axis or a part of it of constant extent."""
    draft, axis = Draft(state), step.axis
    if constant(state.axis_ranges(step.stage)[axis].extent) is None:
        _, axis = draft.add(Split(step.stage, axis, 4, None, "guard"))
    (parts,) = draft.add(RFactor(step.stage, axis, 0))
    draft.add(replace(step, stage=parts, axis=draft.state.stages[parts].leaves[0]))
    return draft


def _neighbours(state: ScheduleState, stage: str, axis: str) -> Iterator[tuple[str, str]]:
    """Pairs of loops, one directly around the other, of which one is over `axis`."""
    for loop in order.loops(state.stages[stage].order):
        inside = [node.axis for node in loop.body if isinstance(node, order.LoopNode)]
        if len(loop.body) == len(inside) == 1 and axis in (loop.axis, inside[0]):
            yield loop.axis, inside[0]


def _index_arrays(state: ScheduleState, stage: str) -> list[str]:
    """The inputs by whose elements a hybrid stage finds the elements that it writes, and which may all differ."""
    op = state.program[stage]
    stores = [s.store for s in sources(op).values()] if isinstance(op, HybridOp) else []
    loads = [n.buffer.name for s in stores for i in s.index for n in walk(i) if isinstance(n, Load)]
    producer = state.program.producer
    held = {n: state.program[producer[n]] for n in dict.fromkeys(loads)}
    return [n for n, op in held.items() if isinstance(op, PlaceholderOp) and _may_all_differ(op)]


def _may_all_differ(op: PlaceholderOp) -> bool:
    """Whether an array has no more elements than its dtype has values."""
    elements = prod(extent_of(extent) or 1 for extent in op.shape)
    return elements <= 1 << info(op.dtype).bits
