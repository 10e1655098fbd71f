"""Drafts of a schedule: steps that are applied without a proof, and the same steps again on loops that were skewed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, fields, replace
from typing import Any

from tensorlang.dataclass import dataclass
from tensorlang.polyhedral.hyperplanes import band_dependences, nonnegative_row
from tensorlang.schedule.derive import derive
from tensorlang.schedule.primitive import Outputs, Primitive
from tensorlang.schedule.primitives.affine import TileBy
from tensorlang.schedule.primitives.annotate import Bind, Parallel, Unroll, Vectorize
from tensorlang.schedule.primitives.loops import Fuse, Skew, Split, nested
from tensorlang.schedule.primitives.pragma import Pragma
from tensorlang.schedule.primitives.prefetch import Prefetch
from tensorlang.schedule.state import ScheduleState
from tensorlang.schedule.trace import Trace

FINAL = (Split, Fuse, TileBy, Parallel, Vectorize, Unroll, Bind, Pragma, Prefetch)
"""Steps after which a loop can no longer be skewed: it is gone, or annotated."""


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
        return "; ".join([*start, *Trace(tuple(self.steps)).to_python().splitlines()])


def planned(state: ScheduleState, steps: Sequence[Primitive]) -> Draft:
    """Some steps on a state."""
    draft = Draft(state)
    for step in steps:
        draft.add(step)
    return draft


def skewed(draft: Draft, stage: str, band: Sequence[str]) -> dict[str, str]:
    """Skew the loops of a band until no dependence points backwards along any of them; returns their new names.

    Inner loops come first: they are skewed by what the outer ones were. Where no skew will do, or none is needed, there
    are no names.
    """
    found = list(band_dependences(derive(draft.state).scop, [f"{stage}.{a}" for a in band]))
    names: dict[str, str] = {}
    for k in reversed(range(len(band))):
        row = nonnegative_row(found, k, len(band))
        if row is None:
            return {}
        for by, factor in zip(band[:k], row, strict=False):
            if factor:
                (names[band[k]],) = draft.add(Skew(stage, names.get(band[k], band[k]), by, factor))
    return names


@dataclass(frozen=True)
class Replay:
    """Steps from the program as declared, parted: those that shape the loops of one stage, then all that need it final.

    `names` are those that every name made by a shaping step has now.
    """

    stage: str
    shaping: Draft
    rest: tuple[tuple[Primitive, Outputs], ...]
    names: Mapping[str, str]

    def band(self, axes: Sequence[str]) -> tuple[str, ...]:
        """The loops of which some final ones are made: from the outermost to the innermost, perfectly nested."""
        made_of = {name: touched(step) for step, made in self.rest for name in made}
        roots: dict[str, None] = {}
        waiting = list(axes)
        while waiting:
            axis = waiting.pop()
            if axis in made_of:
                waiting += made_of[axis]
            else:
                roots[self.names.get(axis, axis)] = None
        return nested(self.shaping.state.stages[self.stage], tuple(roots))

    def skewed(self, axes: Sequence[str]) -> Draft | None:
        """All steps again, where the loops that some axes are made of are skewed before they are final.

        None when no skew helps, or when the last step is the only one that comes after it.
        """
        if len(self.rest) < 2:
            return None
        draft = Draft(self.shaping.state, list(self.shaping.steps), from_start=True)
        moved = skewed(draft, self.stage, self.band(axes))
        if not moved:
            return None
        names = {**moved, **{old: moved.get(new, new) for old, new in self.names.items()}}
        for step, made in self.rest:
            names.update(zip(made, draft.add(_renamed(step, self.stage, names)), strict=False))
        return draft


def replay(start: ScheduleState, stage: str, steps: Sequence[Primitive]) -> Replay:
    """Part steps; ScheduleError when they depend on their order in another way. The last one may be illegal."""
    shaping, state = Draft(start), start
    rest: list[tuple[Primitive, Outputs]] = []
    names: dict[str, str] = {}
    late: set[str] = set()
    for step in steps:
        state, made = step.apply(state)
        final = step is steps[-1] or (isinstance(step, FINAL) and step.stage == stage)
        if final or late.intersection(_words(step)):
            rest.append((step, made))
            late.update(made)
        else:
            names.update(zip(made, shaping.add(_renamed(step, stage, names)), strict=True))
    return Replay(stage, shaping, tuple(rest), names)


def _words(step: Primitive) -> Iterator[str]:
    """The names of axes, stages and arrays in a step."""
    for part in fields(step):  # type: ignore[arg-type]
        value = getattr(step, part.name)
        for word in value if isinstance(value, tuple) else (value,):
            if isinstance(word, str):
                yield word


def touched(step: Primitive) -> tuple[str, ...]:
    """The axes that a step changes."""
    axes: tuple[str, ...] = getattr(step, "axes", None) or (getattr(step, "axis", ""),)
    return tuple(a for a in axes if a)


def _renamed(step: Primitive, stage: str, names: Mapping[str, str]) -> Primitive:
    """A step with the axes of one stage under other names; where a step has a parent, the axes are those of that."""
    if getattr(step, "parent", getattr(step, "stage", None)) != stage:
        return step
    changed: dict[str, Any] = {}
    for part in fields(step):  # type: ignore[arg-type]
        value = getattr(step, part.name)
        if part.name in ("axis", "by", "other", "after") and isinstance(value, str):
            changed[part.name] = names.get(value, value)
        elif part.name == "axes":
            changed[part.name] = tuple(names.get(a, a) for a in value)
    return replace(step, **changed)  # type: ignore[type-var]
