"""The loops of one stage in a whole population: what splits, fusions and layouts make of its axes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, fields, replace
from typing import Any, TypeAlias

import numpy as np

from tensorlang.dataclass import dataclass
from tensorlang.schedules.accesses import Access, Array

Number: TypeAlias = float | Array


@dataclass(frozen=True, slots=True)
class Part:
    """A loop over a piece of an axis: it walks `trips` steps of `stride` elements."""

    axis: str
    trips: Number
    stride: Number = 1


Parts = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class SplitInto:
    """`axis` is cut in blocks of `factor`, or in `nparts` blocks; either part may be left without a loop."""

    axis: str
    factor: Number | None
    nparts: Number | None
    outer: str
    inner: str


@dataclass(frozen=True, slots=True)
class FusedTo:
    """Several axes become one."""

    axes: tuple[str, ...]
    made: str


@dataclass(frozen=True, slots=True)
class TiledBy:
    """Loops over tiles around the loops of the axes, which stay."""

    axes: tuple[str, ...]
    sizes: tuple[Number, ...]
    tiles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Renamed:
    """An axis goes on under another name: shifted, reversed, skewed, or kept by a layout.

    `trips`: the iterations of a loop that is cut, or shared with other statements.
    """

    axis: str
    made: str
    trips: Number | None = None


Step: TypeAlias = SplitInto | FusedTo | TiledBy | Renamed


@dataclass(slots=True)
class StageLoops:
    """One stage while a trace is followed: axes with their extents, accesses, and the steps on its axes.

    `reduce` are the axes of a reduction, the others come in the order of the output's dimensions. `operations` are
    those of one of the `points`. Accesses are of the axes as they were before any step. `copies` of a tile of the
    output are kept at once.
    """

    name: str
    axes: dict[str, Number]
    reduce: frozenset[str]
    accesses: tuple[Access, ...]
    operations: float
    points: float
    bits: int
    steps: list[Step] = field(default_factory=list)
    copies: Number = 1.0

    @property
    def spatial(self) -> tuple[str, ...]:
        """The axes of the output, in order."""
        return tuple(axis for axis in self.axes if axis not in self.reduce)

    def reading(self, renamed: Mapping[str, str]) -> tuple[Access, ...]:
        """The accesses, with other arrays read."""
        return tuple(a if a.write else replace(a, buffer=renamed.get(a.buffer, a.buffer)) for a in self.accesses)

    def steps_of_output(self) -> list[Step]:
        """The steps on axes that are not of the reduction, nor made of those."""
        gone, kept = set(self.reduce), list[Step]()
        for step in self.steps:
            given, made = ends(step)
            if gone & set(given):
                gone |= set(made)
            else:
                kept.append(step)
        return kept

    def steps_to(self, names: Iterable[str]) -> list[Step]:
        """The steps that make some axes, those of a layout for example."""
        needed, found = set(names), list[Step]()
        for step in reversed(self.steps):
            given, made = ends(step)
            if needed & set(made):
                needed |= set(given)
                found.append(step)
        return found[::-1]

    def renamed(self, names: Mapping[str, str]) -> StageLoops:
        """The same loops over axes of other names."""

        def named(axes: Iterable[str]) -> tuple[str, ...]:
            return tuple(names.get(axis, axis) for axis in axes)

        accesses = tuple(
            replace(a, dims=tuple(tuple((names.get(axis, axis), c) for axis, c in dim) for dim in a.dims))
            for a in self.accesses
        )
        axes = dict(zip(named(self.axes), self.axes.values(), strict=True))
        steps = [_renamed(step, names) for step in self.steps]
        return replace(self, axes=axes, reduce=frozenset(named(self.reduce)), accesses=accesses, steps=steps)

    def loops(self, extents: Mapping[str, Number]) -> dict[str, Parts]:
        """What every loop of the stage walks, where its axes have these extents."""
        found: dict[str, Parts] = {axis: (Part(axis, trips),) for axis, trips in extents.items()}
        for step in self.steps:
            match step:
                case SplitInto():
                    outer, inner = _cut(found.get(step.axis, ()), step)
                    found |= {step.outer: outer, step.inner: inner}
                case FusedTo():
                    found[step.made] = tuple(part for axis in step.axes for part in found.get(axis, ()))
                case TiledBy():
                    for axis, size, tile in zip(step.axes, step.sizes, step.tiles, strict=False):
                        found[tile], found[axis] = _cut(found.get(axis, ()), SplitInto(axis, size, None, tile, axis))
                case Renamed():
                    parts = found.get(step.axis, ())
                    found[step.made] = parts if step.trips is None else _resized(parts, step.trips)
        return found


def ends(step: Step) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The axes that a step takes, and those that it makes."""
    match step:
        case SplitInto():
            return (step.axis,), (step.outer, step.inner)
        case Renamed():
            return (step.axis,), (step.made,)
        case FusedTo():
            return step.axes, (step.made,)
        case TiledBy():
            return step.axes, step.tiles


def _renamed(step: Step, names: Mapping[str, str]) -> Step:
    """A step on axes of other names."""

    def named(part: Any) -> Any:
        if isinstance(part, tuple):
            return tuple(map(named, part))
        return names.get(part, part) if isinstance(part, str) else part

    return replace(step, **{f.name: named(getattr(step, f.name)) for f in fields(step)})


def _resized(parts: Parts, trips: Number) -> Parts:
    """A loop with more iterations, or fewer: outermost, if it walks several axes."""
    if not parts:
        return ()
    inner = math.prod((part.trips for part in parts[1:]), start=1.0)
    return (replace(parts[0], trips=np.ceil(trips / np.maximum(inner, 1))), *parts[1:])


def _cut(parts: Sequence[Part], step: SplitInto) -> tuple[Parts, Parts]:
    """The outer and the inner loop of a split: the innermost parts of the loop fill the inner one first."""
    if step.nparts is not None:
        total: Number = 1
        for part in parts:
            total = total * part.trips
        factor: Number = np.ceil(total / step.nparts)
    else:
        assert step.factor is not None
        factor = step.factor
    outer: list[Part] = []
    inner: list[Part] = []
    for part in reversed(parts):
        taken = np.minimum(factor, part.trips)
        inner.insert(0, Part(part.axis, taken, part.stride))
        whole = np.maximum(taken, 1)  # of an empty loop nothing is divided
        outer.insert(0, Part(part.axis, np.ceil(part.trips / whole), part.stride * whole))
        factor = np.maximum(factor / whole, 1)
    return tuple(outer), tuple(inner)
