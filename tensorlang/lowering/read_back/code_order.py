"""The order of generated code is that of the schedule, which was proven legal.

Every run has a place in the code, and its instances have a time in the schedule. Two runs are compared where their
places part: in iterations of the loops around both, and by position. That is decided entry by entry of the times, as
affine sums over the loops, with each inner loop at the end of its range that is worst. In entries that prove no order
(parallel, bound, virtual threads) whatever comes first is legal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property

from tensorlang.dataclass import dataclass
from tensorlang.ir.affine import Affine, add, is_constant, nonnegative, scale
from tensorlang.ir.expr import Expr, same, variables
from tensorlang.ir.thread_tags import THREADS
from tensorlang.lowering.device.arrays import used, written
from tensorlang.lowering.read_back.reversed_pairs import Questions
from tensorlang.lowering.read_back.runs import Run, is_branch
from tensorlang.lowering.read_back.size_forms import SizeForms
from tensorlang.polyhedral.statement import Scop, Statement, constant_bound

_STEP = "a later iteration"
"""How much later the second of two iterations of a loop is, at least 1."""

Bounds = Mapping[str, tuple[Sequence[Affine], Sequence[Affine]]]
"""By loop what it is at least, and at most."""


@dataclass(frozen=True)
class _Placed:
    """A run with its statement and its time in the schedule."""

    run: Run
    statement: Statement
    scop: Scop

    @cached_property
    def sums(self) -> SizeForms:
        """What makes sums of expressions, where the run's conditions hold."""
        return SizeForms.under(self.run.conditions, self.run.loops, self.run.bounds)

    @cached_property
    def when(self) -> tuple[Affine | None, ...]:
        """The time of its instances; None for an entry that no affine sum tells."""
        values = dict(zip(self.statement.loops, self.run.values, strict=True))
        return tuple(_number(p) if isinstance(p, int) else self.sums.of(values[p]) for p in self.statement.time)

    @cached_property
    def names(self) -> tuple[frozenset[str], ...]:
        """What its time is made of: the loops and sizes of each entry."""
        return tuple(frozenset(name for name in form or () if name) for form in self.when)

    @cached_property
    def bounds(self) -> Bounds:
        """The affine bounds of its loops in the code."""
        found: dict[str, tuple[list[Affine], list[Affine]]] = {name: ([], []) for name in self.run.loops}
        for name, (low, end, _) in self.run.bounds.items():
            found[name] = [_number(low)], [_number(end - 1)]
        others = (c for c in self.run.conditions if not ((b := constant_bound(c)) and b[0] in self.run.bounds))
        for form in (f for condition in others for f in nonnegative(condition, self.sums.of)):
            for name, factor in form.items():
                if name in found and factor in (1, -1):
                    rest = scale(add(form, {name: factor}, -1), -factor)
                    found[name][0 if factor > 0 else 1].append(rest)
        return found

    def repeats(self, loop: str) -> bool:
        """Whether a loop around it may have a second iteration."""
        return loop not in self.run.bounds or self.run.bounds[loop][1] - self.run.bounds[loop][0] > 1

    def value(self, entry: int) -> Expr | None:
        """What an entry of the time is; None for a number."""
        part = self.statement.time[entry]
        return self.run.values[self.statement.loops.index(part)] if isinstance(part, str) else None

    @cached_property
    def loops(self) -> tuple[set[str], ...]:
        """The loops that each entry of its time is made of."""
        values = map(self.value, range(len(self.statement.time)))
        return tuple(set() if value is None else variables(value) for value in values)

    def is_free(self, entry: int) -> bool:
        """Whether an entry of the time proves no order."""
        return self.statement.time[entry] in self.scop.unordered


def _number(value: int) -> Affine:
    return {"": value} if value else {}


def disorder(runs: Sequence[Run], scop: Scop) -> tuple[Run, Run] | None:
    """Return two runs, in the order of the code, that are not seen to be in that of the schedule; None if all are."""
    placed = [_Placed(run, scop.statements[run.statement], scop) for run in runs]
    asked = Questions.about(scop)
    found = _disorder(placed, asked)
    asked.tell()
    return found


def _disorder(placed: Sequence[_Placed], asked: Questions) -> tuple[Run, Run] | None:
    for k, first in enumerate(placed):
        if not _may_run_at_once(first):
            return first.run, first.run
        for then in placed[k:]:
            if not _in_order(first, then, asked):
                return first.run, then.run
    return None


def _in_order(first: _Placed, then: _Placed, asked: Questions) -> bool:
    """Whether two runs are in the order of the schedule."""
    if (first.run.moved or then.run.moved) and not _touch(first, then):
        return True
    shared, exclusive = _shared(first.run, then.run)
    around = first.run.time[:shared]
    start, outer = 0, set[str]()
    for name in (part for part in around if isinstance(part, str)):
        start = _alike(first, then, outer, start)
        if name not in THREADS and first.repeats(name) and then.repeats(name):
            pair = _Pair(first, then, frozenset(outer), name, start, asked)
            if not _in_order_along(pair, name in first.run.unordered):
                return False
        outer.add(name)
    return exclusive or _precedes(_Pair(first, then, frozenset(outer), "", _alike(first, then, outer, start), asked))


def _in_order_along(pair: _Pair, is_free: bool) -> bool:
    """Whether iterations of a loop around two runs, whichever is the later one, are in order, or need none."""
    if pair.is_told_by_step(is_free):
        return True
    pairs = [pair] if pair.first is pair.then else [pair, replace(pair, first=pair.then, then=pair.first)]
    return all(map(_are_free if is_free else _precedes, pairs))


def _alike(first: _Placed, then: _Placed, common: Set[str], start: int) -> int:
    """The first entry, from one on, that two runs need not have the same at the same values of loops."""
    for a, b, names in zip(first.when[start:], then.when[start:], first.names[start:], strict=False):
        if a is None or a != b or not names <= common:
            break
        start += 1
    return start


def _touch(first: _Placed, then: _Placed) -> bool:
    """Whether one of two leaves, of different statements, writes an array that the other reads or writes."""
    a, b = first.statement, then.statement
    if a is b:
        return False
    writes = [{access.array for access in s.writes} for s in (a, b)]
    uses = [{access.array for access in (*s.writes, *s.reads)} for s in (a, b)]
    if not (writes[0] & uses[1] or uses[0] & writes[1]):
        return False
    one, other = first.run.leaf, then.run.leaf
    return bool(written(one) & used(other) or used(one) & written(other))


def _loops(place: Sequence[int | str]) -> frozenset[str]:
    return frozenset(part for part in place if isinstance(part, str))


def _shared(first: Run, then: Run) -> tuple[int, bool]:
    """How many entries two places have in common, and whether one iteration has only one of the two."""
    for k, (a, b) in enumerate(zip(first.time, then.time, strict=False)):
        if a != b:
            return k, is_branch(a) or is_branch(b)
    return min(len(first.time), len(then.time)), True


def _may_run_at_once(placed: _Placed) -> bool:
    """Whether what tells apart the iterations of loops that run at once are entries that prove no order."""
    run, statement = placed.run, placed.statement
    for name in run.loops:
        if name in run.unordered or name in run.lanes:
            for entry, part in enumerate(statement.time):
                if name in placed.loops[entry]:
                    if part not in placed.scop.unordered and not (name in run.lanes and part in statement.lanes):
                        return False
                    break
    return True


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two runs at the same values of the loops `common`; the second at a later iteration of the loop `stepped`.

    In the entries of their times before `start` they have the same.
    """

    first: _Placed
    then: _Placed
    common: frozenset[str]
    stepped: str
    start: int
    asked: Questions

    def renamed(self, form: Affine, later: bool) -> Affine:
        """A sum of one of the two: what is not common has names of its own."""
        loops = (self.then if later else self.first).run.loops
        made: Affine = {}
        for name, factor in form.items():
            if name and name == self.stepped:
                made = add(made, {name: factor, _STEP: factor} if later else {name: factor})
            elif name in loops and name not in self.common:
                made = add(made, {_own(name, later): factor})
            else:
                made = add(made, {name: factor})
        return made

    def distance(self, entry: int) -> Affine | None:
        """How far apart the two are in an entry of their times."""
        a, b = self.first.when[entry], self.then.when[entry]
        if a is None or b is None:
            return {} if a is b and self._is_same(entry) else None
        if not self.first.names[entry] and not self.then.names[entry]:
            return _number(b.get("", 0) - a.get("", 0))
        return add(self.renamed(b, True), self.renamed(a, False), -1)

    def apart(self, entry: int) -> frozenset[str] | None:
        """What the two need not have the same of, in an entry that is one sum in both; None for other entries."""
        a, b = self.first.when[entry], self.then.when[entry]
        return self.first.names[entry] - self.common if a is not None and a == b else None

    def steps(self, apart: frozenset[str] | None) -> bool:
        """Whether the loop of which the second is at a later iteration is all of that."""
        return apart is not None and len(apart) == 1 and self.stepped in apart

    def is_told_by_step(self, is_free: bool) -> bool:
        """Whether the first entry that may differ is told by the later iteration alone, whichever run is the later one.

        `is_free`: the code runs the loop in any order.
        """
        if self.start not in self.entries or not self.steps(self.apart(self.start)):
            return False
        form = self.first.when[self.start]
        return self.is_free(self.start) or (not is_free and form is not None and form[self.stepped] > 0)

    @property
    def entries(self) -> range:
        """The entries that the times of both have, from the first one that they need not have the same."""
        return range(self.start, min(len(self.first.when), len(self.then.when)))

    def _is_same(self, entry: int) -> bool:
        """Whether an entry that no sum tells is the same in both, made of common loops and sizes."""
        one, other = self.first.value(entry), self.then.value(entry)
        if one is None or other is None or not same(one, other):
            return False
        return variables(one) & {*self.first.run.loops, *self.then.run.loops} <= self.common

    def is_free(self, entry: int) -> bool:
        """Whether an entry of the times proves no order."""
        return self.first.is_free(entry) and self.then.is_free(entry)

    def is_impossible(self) -> bool:
        """Whether no iterations of the loops around both have the two runs."""
        if self.stepped and self._apart(self.first, self.then, self.stepped, 1):
            return True
        pairs = ((self.first, self.then), (self.then, self.first))
        return any(self._apart(a, b, name, 0) for name in self.common for a, b in pairs)

    def is_reversed(self, sign: str = "<") -> bool:
        """Whether some instances are reversed: exact, and dear."""
        return self.asked.are_reversed(self.first.run, self.then.run, self.common, self.stepped, sign)

    def _apart(self, low: _Placed, high: _Placed, name: str, distance: int) -> bool:
        """Whether a loop that is at least as one run has it is not so much less than the other has it at most."""
        own = {*low.run.loops, *high.run.loops} - self.common
        least, most = ([f for f in found if own.isdisjoint(f)] for found in (low.bounds[name][0], high.bounds[name][1]))
        spans = (add(end, begin, -1) for begin in least for end in most)
        return any(is_constant(span) and span.get("", 0) < distance for span in spans)

    def least(self, form: Affine) -> int | None:
        """The least value of a sum, if it is a constant: inner loops at their worst ends first."""
        if is_constant(form):
            return form.get("", 0)
        for later, placed in ((False, self.first), (True, self.then)):
            for name in reversed(placed.run.loops):
                own = _own(name, later)
                form = self._bounded(form, own, name, (later,)) if own in form else form
        for name in reversed(self.first.run.loops):
            if name in form and (name in self.common or name == self.stepped):
                form = self._bounded(form, name, name, (False, True))
        step = form.get(_STEP, 0)
        form = add(form, {_STEP: step, "": -step}, -1) if step else form
        return form.get("", 0) if step >= 0 and is_constant(form) else None

    def _bounded(self, form: Affine, name: str, loop: str, both: Sequence[bool]) -> Affine:
        """A sum with a loop, by its name there, at the end of its range at which the sum is least, if that is known."""
        factor = form[name]
        rest = add(form, {name: factor}, -1)
        tried = []
        for later in both:
            for bound in (self.then if later else self.first).bounds[loop][0 if factor > 0 else 1]:
                end = self.renamed(bound, later)
                if later and name == self.stepped:
                    end = add(end, {_STEP: 1}, -1)
                tried.append(add(rest, scale(end, factor)))
        return min(tried, key=_roughly, default=form)

    def tells(self, entry: int) -> bool:
        """Whether an entry of the times surely differs."""
        distance = self.distance(entry)
        return self.differs(distance, None if distance is None else self.least(distance))

    def differs(self, distance: Affine | None, least: int | None) -> bool:
        """Whether a distance, whose least value is known, is never 0."""
        if distance is None or (least is not None and least > 0):
            return distance is not None
        most = self.least(scale(distance, -1))
        return most is not None and most > 0


def _roughly(form: Affine) -> tuple[int, int]:
    """How many loops a sum has, and how small it is: the fewer and the larger, the more it tells."""
    step = form.get(_STEP, 0)
    return len(form) - ("" in form) - (_STEP in form), -form.get("", 0) - step


def _own(name: str, later: bool) -> str:
    return f"{name} of the {'second' if later else 'first'}"


def _are_free(pair: _Pair) -> bool:
    """Whether no order is needed between two runs: the first entry in which their times differ proves none."""
    passed: list[int] = []
    for entry in pair.entries:
        apart = pair.apart(entry)
        if apart is not None and not apart:
            continue
        if pair.is_free(entry):
            if pair.steps(apart):
                return True
            passed.append(entry)
            continue
        distance = pair.distance(entry)
        if distance is None or distance:
            return any(map(pair.tells, passed)) or pair.is_impossible() or not pair.is_reversed("!=")
    return True


def _precedes(pair: _Pair) -> bool:
    """Whether the first of two runs comes before the second in the schedule, or no order is needed."""
    for entry in pair.entries:
        apart = pair.apart(entry)
        if apart is not None and not apart:
            continue
        form = pair.first.when[entry]
        if form is not None and pair.steps(apart) and (form[pair.stepped] > 0 or pair.is_free(entry)):
            return True
        distance = pair.distance(entry)
        if distance is not None and not distance:
            continue
        least = None if distance is None else pair.least(distance)
        if pair.is_free(entry):
            if pair.differs(distance, least):
                return True
        elif least is None or least < 0:
            return pair.is_impossible() or not pair.is_reversed()
        elif least > 0:
            return True
    return True
