"""Elementwise stages that read neighbours of what others compute: what is better made once than where it is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tensorlang.dataclass import dataclass
from tensorlang.ir.affine import affine
from tensorlang.ir.expr import Binary, Expr, Load, substitute, variables, walk
from tensorlang.ir.operators import DIVISION
from tensorlang.ir.simplify import simplify
from tensorlang.schedules.accesses import cost_of_point
from tensorlang.schedules.moves import cuts_of, near_axis
from tensorlang.schedules.recognise import Group, Stage, is_made_often
from tensorlang.schedules.words import is_word_layout
from tensorlang.te.operation import ComputeOp, loads

_WORTH, _LEAST = 8, 2
"""Additions for each element that are worth a row that is written and read, and of one place: one joins a product."""
_DIVISION, _DIVIDED = (*DIVISION, "div"), 3
"""What takes longer than an addition, and how much: integers are divided by products and shifts."""
_PLACES = 64
"""Places at most that a stage is read at before it is made once whatever it costs."""

Place: TypeAlias = tuple[str, tuple[Expr, ...]]
"""A stage, and where it reads another one."""
Axes: TypeAlias = tuple[frozenset[str], ...]
"""For each axis of a stage, the axes of the main stage that move it."""


@dataclass(frozen=True, slots=True)
class Stencil:
    """The stages of a group that are made once, producers first, each with the axis that numbers its rows, or elements.

    `row`: the axis of the main stage that moves these, by its place; `reads`: at how many places one is read; `even`:
    whether its rows move by as much from row to row.
    """

    kept: dict[str, int]
    row: int
    reads: int
    even: bool


@dataclass(frozen=True, slots=True)
class _Kept:
    """A stage that is made once: what moves its axes, at how many places it is read, in all and along each, and how
    evenly.
    """

    stage: Stage
    axes: Axes
    reads: int
    places: tuple[int, ...]
    even: tuple[bool, ...]


def stencil_of(group: Group) -> Stencil | None:
    """What an elementwise group had better make once; None where it may as well compute all of it where it is read."""
    stages = (group.main, *group.producers)
    if not group.producers or any(is_word_layout(stage.op) or near_axis(stage) for stage in stages):
        return None
    kept, spatial = _kept_of(group), group.main.spatial
    moved = {axis for stage in kept for axes, n in zip(stage.axes, stage.places, strict=True) if n > 1 for axis in axes}
    if not moved:
        return None
    along = len(spatial) > 1
    row = min(len(spatial) - 1 - along, *(spatial.index(axis) for axis in moved))
    numbered = ((k, k.axes[:-1] if along else k.axes) for k in kept)
    rows = {k.stage.name: d for k, places in numbered for d, axes in enumerate(places) if spatial[row] in axes}
    found = [k for k in kept if k.stage.name in rows]
    if not found:
        return None
    even = all(k.even[rows[k.stage.name]] for k in found)
    return Stencil({k.stage.name: rows[k.stage.name] for k in found}, row, max(k.reads for k in found), even)


def _kept_of(group: Group) -> list[_Kept]:
    """What is made once, producers first: it would cost more to make it wherever it is read."""
    axes_of: dict[str, dict[str, frozenset[str]]] = {
        group.main.name: {axis: frozenset({axis}) for axis in group.main.spatial}
    }
    places: dict[str, dict[str, Place]] = {}
    kept = list[_Kept]()
    _read(places, group.main.name, group.main.op, {})
    for stage in reversed(group.producers):
        here = tuple(places.get(stage.name, {}).values())
        if _is_worth(group, stage, len(here)) and all(_is_near(index) for _, indices in here for index in indices):
            found = _kept(stage, here, axes_of)
            axes_of[stage.name] = dict(zip(stage.spatial, found.axes, strict=True))
            kept.insert(0, found)
            _read(places, stage.name, stage.op, {})
        else:
            for reader, index in here:
                _read(places, reader, stage.op, dict(zip(stage.spatial, index, strict=True)))
    return kept


def _kept(stage: Stage, here: Sequence[Place], axes_of: dict[str, dict[str, frozenset[str]]]) -> _Kept:
    along = [[(reader, index[d]) for reader, index in here] for d in range(len(stage.spatial))]
    moved = (
        frozenset(axis for reader, index in reads for v in variables(index) for axis in axes_of[reader].get(v, ()))
        for reads in along
    )
    counts = tuple(len({str(index) for _, index in reads}) for reads in along)
    even = tuple(all(_is_even(index) for _, index in reads) for reads in along)
    return _Kept(stage, tuple(moved), len(here), counts, even)


def _read(places: dict[str, dict[str, Place]], reader: str, op: ComputeOp, axes: dict[str, Expr]) -> None:
    """Note where a stage reads others, for `reader`, which computes it at given places of its axes."""
    for load in loads(op):
        index = tuple(simplify(substitute(place, axes)) for place in load.index)
        places.setdefault(load.buffer.name, {})[f"{reader}: {', '.join(map(str, index))}"] = (reader, index)


def _is_worth(group: Group, stage: Stage, places: int) -> bool:
    """Whether a stage is made once; so is what comes from several places, whose readers would all come in pieces."""
    cost = cost_of_point(stage.op) + _DIVIDED * sum(map(_divisions, stage.op.body))
    is_dear = places > _PLACES or (cost >= _LEAST and (places - 1) * cost >= _WORTH) or is_made_often(group, stage)
    return len(stage.op.body) == 1 and (is_dear or (places > 1 and bool(cuts_of(stage.op))))


def _divisions(value: Expr) -> int:
    """The quotients and remainders of what is read."""
    divided = (n for n in walk(value) if isinstance(n, Binary) and n.op in _DIVISION)
    return sum(any(isinstance(part, Load) for part in walk(n)) for n in divided)


def _is_near(index: Expr) -> bool:
    """Whether neighbours read at neighbouring places: not where data say, nor in turns."""
    return not any(isinstance(n, Load) or (isinstance(n, Binary) and "mod" in n.op) for n in walk(index))


def _is_even(index: Expr) -> bool:
    """Whether a place moves on by as much with each step."""
    form = affine(index)
    return form is not None and all(factor > 0 for name, factor in form.items() if name)
