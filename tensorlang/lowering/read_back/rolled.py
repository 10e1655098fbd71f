"""Copies that unrolling made, as the loops that they were: far fewer pieces for isl to compare.

Statements in a row that are alike but for constants, which grow by the same steps from one to the next, are iterations
of a loop. So are groups of a few such statements. The loop runs the same instances in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from operator import sub
from typing import TypeAlias

from tensorlang.dataclass import dataclass
from tensorlang.ir.affine import add, affine
from tensorlang.ir.expr import Binary, Const, Expr, Var, binary, to_text
from tensorlang.ir.operators import COMPARE
from tensorlang.ir.stmt import INDEX
from tensorlang.lowering.read_back.runs import Place, Run
from tensorlang.polyhedral.statement import constant_bound

_LONGEST = 8
"""Statements of a group that is repeated, at most."""

Offsets: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Item:
    """What a statement of a row runs: runs that differ from those of its copies in the `offsets` alone."""

    runs: tuple[Run, ...]
    alike: tuple[object, ...]
    offsets: Offsets


@dataclass(frozen=True, slots=True)
class Depth:
    """Where a row of statements stands: how many loops, conditions and entries of a time are around all of it."""

    loops: int
    conditions: int
    time: int


def rolled(row: Sequence[Sequence[Run]], depth: Depth) -> list[Run]:
    """Return the runs of statements in a row, one after the other, with copies joined."""
    row = [runs for runs in row if runs]
    kinds = {tuple((run.statement, run.part, run.loops[depth.loops :]) for run in runs) for runs in row}
    if len(kinds) == len(row):
        return _placed(row, depth)
    items = [_item(runs, depth) for runs in row]
    return _placed([item.runs for item in _rolled(items, depth, frozenset())], depth)


def _item(runs: Sequence[Run], depth: Depth) -> Item:
    alike: list[object] = []
    offsets: list[int] = []
    for run in runs:
        forms = [_form(value) for value in run.values]
        forms += [_form_of_condition(condition) for condition in run.conditions[depth.conditions :]]
        kinds = (run.unordered, run.lanes, run.gathered, run.threads, run.moved, run.loops[depth.loops :])
        alike.append(
            (
                run.statement,
                run.part,
                kinds,
                _made(run, depth, ()),
                run.time[depth.time + 1 :],
                tuple(form for form, _ in forms),
            )
        )
        offsets += [offset for _, offset in forms]
    return Item(tuple(runs), tuple(alike), tuple(offsets))


def _form(value: Expr) -> tuple[object, int]:
    """What a value is made of but for a constant, and the constant."""
    if isinstance(value, Var):
        return value.name, 0
    if isinstance(value, Const):
        return None, int(value.value)
    form = affine(value)
    if form is None:
        return to_text(value), 0
    return frozenset((name, factor) for name, factor in form.items() if name), form.get("", 0)


def _form_of_condition(condition: Expr) -> tuple[object, int]:
    bound = constant_bound(condition)
    if bound is not None:
        name, is_lower, number = bound
        return (name, is_lower), -number
    if isinstance(condition, Binary) and condition.op in COMPARE:
        left, right = affine(condition.a), affine(condition.b)
        if left is not None and right is not None:
            form = add(left, right, -1)
            return (condition.op, frozenset((n, c) for n, c in form.items() if n)), form.get("", 0)
    return to_text(condition), 0


def _rolled(items: list[Item], depth: Depth, taken: frozenset[str]) -> list[Item]:
    """The row with repeated groups as loops, until nothing repeats."""
    while len(items) > 1:
        made: list[Item] = []
        at = 0
        while at < len(items):
            length, times = _repeated(items, at)
            if times > 1:
                made.append(_loop(items[at : at + length * times], length, depth, taken))
            else:
                made.append(items[at])
            at += length * times
        if len(made) == len(items):
            break
        items = made
    return items


def _repeated(items: Sequence[Item], at: int) -> tuple[int, int]:
    """The length of the group of items that is repeated from a place on, and how often; (1, 1) if none is."""
    best = 1, 1
    for length in range(1, min(_LONGEST, (len(items) - at) // 2) + 1):
        times = min(_times(items, at + k, length) for k in range(length))
        if times > 1 and length * times > best[0] * best[1]:
            best = length, times
    return best


def _times(items: Sequence[Item], at: int, length: int) -> int:
    """How often an item is repeated at a distance, with offsets that grow by the same steps."""
    times, step = 1, None
    for k in range(at + length, len(items), length):
        before, after = items[k - length], items[k]
        if before.alike != after.alike:
            break
        found = tuple(map(sub, after.offsets, before.offsets))
        if step is not None and found != step:
            break
        times, step = times + 1, found
    return times


def _loop(items: Sequence[Item], length: int, depth: Depth, taken: frozenset[str]) -> Item:
    """The loop of which some items are the iterations, `length` of them each; its name is none of those `taken`."""
    times = len(items) // length
    taken = taken.union(*(run.loops for item in items[:length] for run in item.runs))
    copy = Var(next(name for n in count() if (name := f"copy {n}") not in taken), INDEX)
    inside = [_moved(items[k], items[k + length], copy, depth) for k in range(length)]
    body = _rolled(inside, depth, taken | {copy.name}) if length > 1 else inside
    within = tuple(
        replace(
            run,
            loops=(*run.loops[: depth.loops], copy.name, *run.loops[depth.loops :]),
            conditions=(
                *run.conditions[: depth.conditions],
                binary("ge", copy, 0),
                binary("lt", copy, times),
                *run.conditions[depth.conditions :],
            ),
            time=(*run.time[: depth.time], 0, copy.name, *run.time[depth.time :]),
            allocated=_made(run, depth, (copy.name,), keep=True),
        )
        for run in _placed([item.runs for item in body], depth)
    )
    return _item(within, depth)


def _moved(item: Item, following: Item, copy: Var, depth: Depth) -> Item:
    """An item with its offsets growing with a loop."""
    steps = iter([b - a for a, b in zip(item.offsets, following.offsets, strict=True)])
    runs = []
    for run in item.runs:
        values = tuple([_grown(value, next(steps), copy) for value in run.values])
        conditions = tuple([_grown_condition(c, next(steps), copy) for c in run.conditions[depth.conditions :]])
        runs.append(replace(run, values=values, conditions=(*run.conditions[: depth.conditions], *conditions)))
    return _item(runs, depth)


def _grown(value: Expr, step: int, copy: Var) -> Expr:
    return binary("add", value, binary("mul", copy, Const(step, INDEX))) if step else value


def _grown_condition(condition: Expr, step: int, copy: Var) -> Expr:
    if not step:
        return condition
    assert isinstance(condition, Binary)
    return binary(condition.op, _grown(condition.a, step, copy), condition.b)


def _placed(row: Sequence[Sequence[Run]], depth: Depth) -> list[Run]:
    """The runs of statements in a row, timed by their places in it."""
    return [_at(run, k, depth.time) for k, runs in enumerate(row) for run in runs]


def _at(run: Run, position: int, entry: int) -> Run:
    time = run.time
    return run if time[entry] == position else replace(run, time=(*time[:entry], position, *time[entry + 1 :]))


def _made(run: Run, depth: Depth, copies: Place, keep: bool = False) -> tuple[tuple[str, Place], ...]:
    """Where the arrays of a run are made, in a loop over copies; without the position in the row unless it is kept."""
    row = sum(part not in run.unordered for part in run.time[: depth.time])
    return tuple(
        (name, at if len(at) <= row else (*at[:row], *(at[row : row + 1] if keep else ()), *copies, *at[row + 1 :]))
        for name, at in run.allocated
    )
