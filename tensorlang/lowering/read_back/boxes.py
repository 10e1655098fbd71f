"""Instances that make boxes, of loops between constants: compared by counting, which costs next to nothing.

Boxes that lie in a set, meet nowhere, and have as many points as it together, are all of it. The set is a box with
corners cut off (`8 * i_o + i_i < 100`). What cuts the runs in the same way is compared as it stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, product
from math import prod
from typing import TypeAlias

from tensorlang.dataclass import dataclass
from tensorlang.ir.affine import Affine, affine, nonnegative
from tensorlang.ir.expr import Const, Expr, Var
from tensorlang.lowering.read_back.runs import Run
from tensorlang.polyhedral.statement import Bounds, Statement, constant_bound

Span: TypeAlias = tuple[int, int]
"""The first value, and the one behind the last."""
Form: TypeAlias = frozenset[tuple[str, int]]
"""A sum of loops that is at least 0, by its factors."""
_MOST = 32
"""Boxes that are compared with each other."""
_ROWS = 256
"""Rows of a set that are counted one by one."""


@dataclass(frozen=True, slots=True)
class _Cut:
    """A box of loops, and what cuts it: sums that are at least 0."""

    spans: Mapping[str, Span]
    sums: frozenset[Form]


def are_filled(statement: Statement, bounds: Bounds, runs: Sequence[Run]) -> bool:
    """Whether the runs are seen to be a statement's instances, each of them once; False is no verdict.

    `bounds` are the constant ones of the statement's loops.
    """
    wanted = _cut(statement.domain, bounds, statement.loops) if 0 < len(runs) <= _MOST else None
    if wanted is None:
        return False
    made: list[_Cut] = []
    for run in runs:
        cut = _cut(run.conditions, run.bounds, run.loops)
        instances = None if cut is None else _instances(run, statement.loops, cut)
        if instances is None:
            return False
        made.append(instances)
    return _are_all(made, wanted)


def _are_all(made: Sequence[_Cut], wanted: _Cut) -> bool:
    """Whether sets are seen to be all of another one, and to meet nowhere."""
    alike = made[0].sums
    if not alike <= wanted.sums or any(cut.sums != alike for cut in made):
        return False
    same, rest = _names(alike), wanted.sums - alike
    if same & _names(rest) or any(cut.spans[name] != wanted.spans[name] for name in same for cut in made):
        return False
    names = [name for name in wanted.spans if name not in same]
    boxes = [[cut.spans[name] for name in names] for cut in made]
    if any(_least(form, cut.spans) < 0 for form in rest for cut in made):
        return False
    limits = [wanted.spans[name] for name in names]
    inside = all(low <= a and b <= end for box in boxes for (a, b), (low, end) in zip(box, limits, strict=True))
    points = _points({name: wanted.spans[name] for name in names}, rest) if inside else None
    return sum(map(_volume, boxes)) == points and not any(_meet(a, b) for a, b in combinations(boxes, 2))


def _cut(conditions: Iterable[Expr], bounds: Bounds, loops: Sequence[str]) -> _Cut | None:
    """What conditions say of loops between constants; None where they say anything else."""
    if not all(name in bounds and bounds[name][0] < bounds[name][1] for name in loops):
        return None
    spans = {name: bounds[name][:2] for name in loops}
    found: set[Form] = set()
    for condition in conditions:
        bound = constant_bound(condition)
        if bound is not None and bound[0] in spans:
            continue
        forms = nonnegative(condition)
        if not forms or not all(spans.keys() >= form.keys() - {""} for form in forms):
            return None
        cutting = (form for form in forms if _least(frozenset(form.items()), spans) < 0)
        found.update(_without_constants(form, spans) for form in cutting)
    return _Cut(spans, frozenset(found))


def _without_constants(form: Affine, spans: Mapping[str, Span]) -> Form:
    """A sum without the loops that have one value."""
    known = {name: spans[name][0] for name in form if name and spans[name][1] - spans[name][0] == 1}
    constant = form.get("", 0) + sum(form[name] * value for name, value in known.items())
    found = {(name, factor) for name, factor in form.items() if name and name not in known}
    return frozenset(found | {("", constant)} if constant else found)


def _instances(run: Run, loops: Sequence[str], cut: _Cut) -> _Cut | None:
    """The instances of a run over the loops of its statement; None if any may be run twice, but for a thread itself."""
    spans: dict[str, Span] = {}
    own: dict[str, tuple[str, int]] = {}
    for loop, value in zip(loops, run.values, strict=True):
        name, offset = _shifted(value)
        if name and (name in own or name not in cut.spans):
            return None
        low, end = cut.spans[name] if name else (0, 1)
        spans[loop] = low + offset, end + offset
        own |= {name: (loop, offset)} if name else {}
    if any(end - low > 1 for name, (low, end) in cut.spans.items() if name not in own and name not in run.threads):
        return None
    if not _names(cut.sums) <= own.keys():
        return None
    return _Cut(spans, frozenset(_over(form, own) for form in cut.sums))


def _over(form: Form, own: Mapping[str, tuple[str, int]]) -> Form:
    """A sum over the loops of a statement, each of which is one of the code and a number."""
    constant = sum(number if not name else -number * own[name][1] for name, number in form)
    found = {(own[name][0], factor) for name, factor in form if name}
    return frozenset(found | {("", constant)} if constant else found)


def _shifted(value: Expr) -> tuple[str, int]:
    """The loop and the constant whose sum a value is: no loop for a constant, one that is none for anything else."""
    match value:
        case Var(name):
            return name, 0
        case Const(int(number)):
            return "", number
    form: Affine = affine(value) or {}
    names = [name for name in form if name]
    return (names[0], form.get("", 0)) if len(names) == 1 and form[names[0]] == 1 else ("no loop", 0)


def _names(forms: Iterable[Form]) -> set[str]:
    return {name for form in forms for name, _ in form if name}


def _least(form: Form, spans: Mapping[str, Span]) -> int:
    """The least value of a sum in a box."""
    return sum(
        factor if not name else factor * (spans[name][0] if factor > 0 else spans[name][1] - 1) for name, factor in form
    )


def _points(spans: Mapping[str, Span], sums: Iterable[Form]) -> int | None:
    """How many points of a box have sums that are at least 0; None where counting them takes long."""
    count, left = 1, dict(spans)
    for forms in _groups(sums):
        inside = _counted({name: left.pop(name) for name in _names(forms)}, forms)
        if inside is None:
            return None
        count *= inside
    return count * _volume(left.values())


def _groups(sums: Iterable[Form]) -> list[list[Form]]:
    """Sums that share loops, together."""
    groups: list[list[Form]] = []
    for form in sums:
        near = [group for group in groups if _names(group) & _names([form])]
        groups = [group for group in groups if group not in near] + [[form, *(f for group in near for f in group)]]
    return groups


def _counted(spans: Mapping[str, Span], forms: Sequence[Form]) -> int | None:
    """The points of a cut box, in rows along the longest loop."""
    if not spans:
        return None
    longest = max(spans, key=lambda name: spans[name][1] - spans[name][0])
    others = [name for name in spans if name != longest]
    if _volume(spans[name] for name in others) > _ROWS:
        return None
    table = [dict(form) for form in forms]
    count = 0
    for row in product(*(range(*spans[name]) for name in others)):
        low, end = spans[longest]
        for form in table:
            rest = form.get("", 0) + sum(form.get(name, 0) * value for name, value in zip(others, row, strict=True))
            low, end = _where(form.get(longest, 0), rest, (low, end))
        count += max(0, end - low)
    return count


def _where(factor: int, rest: int, span: Span) -> Span:
    """The part of a span in which a multiple and a number are at least 0 together."""
    low, end = span
    if not factor:
        return (low, end) if rest >= 0 else (low, low)
    return (max(low, -(rest // factor)), end) if factor > 0 else (low, min(end, rest // -factor + 1))


def _meet(a: Sequence[Span], b: Sequence[Span]) -> bool:
    return all(low < last and first < end for (low, end), (first, last) in zip(a, b, strict=True))


def _volume(box: Iterable[Span]) -> int:
    return prod(end - low for low, end in box)
