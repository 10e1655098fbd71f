"""The loops of one stage in a whole population: what splits, fusions and layouts make of its axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

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
    """An axis goes on under another name: shifted, reversed, skewed, or kept by a layout."""

    axis: str
    made: str


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
            given: tuple[str, ...]
            made: tuple[str, ...]
            match step:
                case SplitInto(axis=axis):
                    given, made = (axis,), (step.outer, step.inner)
                case Renamed(axis=axis):
                    given, made = (axis,), (step.made,)
                case FusedTo():
                    given, made = step.axes, (step.made,)
                case TiledBy():
                    given, made = step.axes, step.tiles
            if gone & set(given):
                gone |= set(made)
            else:
                kept.append(step)
        return kept

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
                    found[step.made] = found.get(step.axis, ())
        return found


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
        outer.insert(0, Part(part.axis, np.ceil(part.trips / taken), part.stride * taken))
        factor = np.maximum(factor / taken, 1)
    return tuple(outer), tuple(inner)
