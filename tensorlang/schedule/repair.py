"""What would be legal instead of a refused step: alternatives are applied and proven before they are offered.

The search is bounded by isl operations and by a number of tries, not by the clock, so that equal programs get equal
answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import islice, permutations
from typing import Any, TypeAlias

from tensorlang.errors import IllegalOrder, IllegalParallel, ScheduleError
from tensorlang.ir.expr import Load, walk
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.hyperplanes import band_dependences, nonnegative_row
from tensorlang.polyhedral.ordered import sources
from tensorlang.schedule import order
from tensorlang.schedule.check import is_legal
from tensorlang.schedule.derive import derive
from tensorlang.schedule.primitive import Outputs, Primitive, key_of
from tensorlang.schedule.primitives.affine import TileBy
from tensorlang.schedule.primitives.annotate import Bind, Parallel, Vectorize
from tensorlang.schedule.primitives.assume import Assume
from tensorlang.schedule.primitives.distribute import Fission, FuseWith
from tensorlang.schedule.primitives.loops import Reorder, Skew, Split, nested
from tensorlang.schedule.primitives.placement import ComputeAt
from tensorlang.schedule.primitives.reduction import RFactor
from tensorlang.schedule.primitives.shift import Shift
from tensorlang.schedule.primitives.time_tile import plan_time_tile, plan_wavefront
from tensorlang.schedule.relation import constant
from tensorlang.schedule.state import ScheduleState, initial_state
from tensorlang.te.operation import HybridOp, PlaceholderOp
from tensorlang.te.program import Program

MOST = 4  # alternatives offered
TRIES = 24
OPERATIONS = 1_000_000  # of isl, for the whole search


@dataclass
class Draft:
    """Steps that may replace a refused one, and the state that they lead to."""

    state: ScheduleState
    steps: list[Primitive] = field(default_factory=list)
    from_start: bool = False

    def add(self, step: Primitive) -> Outputs:
        """Apply one more step, without a proof."""
        self.state, made = step.apply(self.state)
        self.steps.append(step)
        return made

    def text(self) -> str:
        """The steps as one line of Python."""
        start = ["s = te.create_schedule(outputs)"] if self.from_start else []
        return "; ".join([*start, *(step.text() for step in self.steps)])


Attempt: TypeAlias = Callable[[], Draft | None]  # may raise ScheduleError: then it is none


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
    return type(error)(error.asked, error.why, witness=error.witness, legal=partial(_alternatives, refused, error))


def _alternatives(refused: Refused, error: ScheduleError) -> list[str]:
    if isinstance(error, IllegalOrder):
        return _proven(_reordered(refused))
    return [*error.legal, *_factored(refused, error)] or _proven(_parallelized(refused))


def _proven(attempts: Iterator[Attempt]) -> list[str]:
    """The first alternatives that are legal."""
    found: list[str] = []
    with suppress(isl.BudgetExceeded), isl.budget(OPERATIONS):
        for attempt in islice(attempts, TRIES):
            with suppress(ScheduleError, KeyError):
                draft = attempt()
                if draft is not None and draft.steps and draft.text() not in found and is_legal(draft.state):
                    found.append(draft.text())
            if len(found) == MOST:
                break
    return found


def _reordered(refused: Refused) -> Iterator[Attempt]:
    """Other ways to what a step wanted that runs a statement too early."""
    before = refused.before
    match refused.step:
        case Reorder(stage, axes):
            yield partial(_skewed_first, before, stage, axes)
            yield from _from_the_start(refused)
            yield from _each(before, (Reorder(stage, other) for other in _other_orders(before, stage, axes)))
        case TileBy(stage, axes, _, sizes, _):
            yield partial(_time_tiled, before, stage, axes, sizes)
        case FuseWith() as fuse:
            for by in range(1, 5):
                yield partial(_shifted_first, before, fuse, by, True)
                yield partial(_shifted_first, before, fuse, by, False)
        case Fission(stage, axis, _):
            body = order.find(before.stages[stage].order, axis).body
            children = [node if isinstance(node, str) else node.axis for node in body]
            yield from _each(before, (Fission(stage, axis, child) for child in children[:-1]))
        case Shift(stage, axis, by, statement):
            others = sorted(range(-4, 5), key=lambda n: (abs(n - _number(by)), n))
            yield from _each(before, (Shift(stage, axis, str(other), statement) for other in others))
        case ComputeAt(stage, _, _):
            yield from _each(before, _places(before, stage))
        case _:
            yield from _from_the_start(refused)


def _each(state: ScheduleState, steps: Iterable[Primitive]) -> Iterator[Attempt]:
    return (partial(_planned, state, (step,)) for step in steps)


def _time_tiled(state: ScheduleState, stage: str, axes: tuple[str, ...], sizes: tuple[int, ...]) -> Draft:
    return _planned(state, plan_time_tile(state, stage, axes[0], axes[1:], sizes, "rectangular"))


def _wavefront(state: ScheduleState, stage: str, axes: tuple[str, str]) -> Draft:
    return _planned(state, plan_wavefront(state, stage, axes))


def _planned(state: ScheduleState, steps: Sequence[Primitive]) -> Draft:
    draft = Draft(state)
    for step in steps:
        draft.add(step)
    return draft


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


def _skew(draft: Draft, stage: str, band: Sequence[str]) -> dict[str, str]:
    """Skew the loops of a band until no dependence points backwards along any of them; returns their new names.

    Inner loops come first: they are skewed by what the outer ones were.
    """
    found = list(band_dependences(derive(draft.state).scop, [f"{stage}.{a}" for a in band]))
    names = dict(zip(band, band, strict=True))
    for k in reversed(range(len(band))):
        row = nonnegative_row(found, k, len(band))
        if row is None:
            return {}
        for by, factor in zip(band[:k], row, strict=False):
            if factor:
                (names[band[k]],) = draft.add(Skew(stage, names[band[k]], by, factor))
    return names


def _skewed_first(state: ScheduleState, stage: str, axes: tuple[str, ...]) -> Draft | None:
    """The same order after a skew."""
    draft = Draft(state)
    names = _skew(draft, stage, nested(state.stages[stage], axes))
    if not draft.steps or not names:
        return None
    draft.add(Reorder(stage, tuple(names[a] for a in axes)))
    return draft


def _shifted_first(state: ScheduleState, step: FuseWith, by: int, second: bool) -> Draft:
    """The same fusion after one of the loops has been moved back by some iterations."""
    draft = Draft(state)
    stage, axis = (step.second or step.stage, step.other) if second else (step.stage, step.axis)
    (shifted,) = draft.add(Shift(stage, axis, str(by), ""))
    draft.add(replace(step, other=shifted) if second else replace(step, axis=shifted))
    return draft


def _from_the_start(refused: Refused) -> Iterator[Attempt]:
    """All steps again, on loops that were skewed first: what was split can no longer be skewed."""
    stage = getattr(refused.step, "stage", None)
    if stage is None or stage not in refused.original.by_name or not refused.trace:
        return
    start = initial_state(refused.original)
    band = _outer_band(start, stage)
    if len(band) > 1:
        yield partial(_again, start, stage, band, (*refused.trace, refused.step))


def _outer_band(state: ScheduleState, stage: str) -> tuple[str, ...]:
    """The outermost loops of a stage that hold nothing but each other."""
    body = state.stages[stage].order if stage in state.stages else ()
    band: list[str] = []
    while len(body) == 1 and isinstance(body[0], order.LoopNode):
        band.append(body[0].axis)
        body = body[0].body
    return tuple(band)


def _again(start: ScheduleState, stage: str, band: Sequence[str], steps: Sequence[Primitive]) -> Draft | None:
    """Skew a band, and repeat steps under the new names of what they made."""
    draft = Draft(start, from_start=True)
    names = _skew(draft, stage, band)
    if not draft.steps or not names:
        return None
    state = start
    for step in steps:
        state, made = step.apply(state)
        names.update(zip(made, draft.add(_renamed(step, stage, names)), strict=True))
    return draft


def _renamed(step: Primitive, stage: str, names: dict[str, str]) -> Primitive:
    """A step with the axes of one stage under other names."""
    if getattr(step, "stage", None) != stage:
        return step
    changed: dict[str, Any] = {}
    for part in fields(step):  # type: ignore[arg-type]
        value = getattr(step, part.name)
        if part.name in ("axis", "by", "other", "after") and isinstance(value, str):
            changed[part.name] = names.get(value, value)
        elif part.name == "axes":
            changed[part.name] = tuple(names.get(a, a) for a in value)
    return replace(step, **changed)  # type: ignore[type-var]


def _factored(refused: Refused, error: ScheduleError) -> list[str]:
    """How partial results make a reduce axis free of the dependence between its updates."""
    before, step = refused.before, refused.step
    if error.witness is None or error.witness.kind != "reduction" or not isinstance(step, Parallel | Vectorize | Bind):
        return []
    word = key_of(step)
    attempt, text = _factor(before, step, step.axis), [f"s.rfactor({step.stage!r}, {step.axis!r})"]
    text.append(f"then {word} {step.axis!r} of the partial results")
    if constant(before.axis_ranges(step.stage)[step.axis].extent) is None:
        attempt = _split_and_factor(before, step)
        text = [
            f"split {step.axis} by a constant factor, s.rfactor the inner axis, then {word} the axis of partial results"
        ]
    return text if _proven(iter([attempt])) else []


def _factor(state: ScheduleState, step: Parallel | Vectorize | Bind, axis: str, draft: Draft | None = None) -> Attempt:
    """The asked step on the partial results of a reduction."""

    def attempt() -> Draft:
        made = draft or Draft(state)
        (parts,) = made.add(RFactor(step.stage, axis, 0))
        made.add(replace(step, stage=parts, axis=made.state.stages[parts].leaves[0]))
        return made

    return attempt


def _split_and_factor(state: ScheduleState, step: Parallel | Vectorize | Bind) -> Attempt:
    """The same for an axis of any extent, of which a part has a constant one."""

    def attempt() -> Draft | None:
        draft = Draft(state)
        _, inner = draft.add(Split(step.stage, step.axis, 4, None, "guard"))
        return _factor(state, step, inner, draft)()

    return attempt


def _parallelized(refused: Refused) -> Iterator[Attempt]:
    """Other ways to run iterations at the same time."""
    before, step = refused.before, refused.step
    match step:
        case Parallel(stage, axis) | Vectorize(stage, axis) | Bind(stage, axis, _):
            for array in _index_arrays(before, stage):
                yield partial(_planned, before, (Assume("injective", array, None, None), step))
        case _:
            return
    if isinstance(step, Parallel):
        for pair in _neighbours(before, stage, axis):
            yield partial(_wavefront, before, stage, pair)


def _neighbours(state: ScheduleState, stage: str, axis: str) -> Iterator[tuple[str, str]]:
    """Pairs of loops, one directly around the other, of which one is over `axis`."""
    for loop in order.loops(state.stages[stage].order):
        inside = [node.axis for node in loop.body if isinstance(node, order.LoopNode)]
        if len(loop.body) == len(inside) == 1 and axis in (loop.axis, inside[0]):
            yield loop.axis, inside[0]


def _index_arrays(state: ScheduleState, stage: str) -> list[str]:
    """The inputs by whose elements a hybrid stage finds the elements that it writes."""
    op = state.program[stage]
    stores = [s.store for s in sources(op).values()] if isinstance(op, HybridOp) else []
    loads = [n.buffer.name for s in stores for i in s.index for n in walk(i) if isinstance(n, Load)]
    producer = state.program.producer
    return [n for n in dict.fromkeys(loads) if isinstance(state.program[producer[n]], PlaceholderOp)]
