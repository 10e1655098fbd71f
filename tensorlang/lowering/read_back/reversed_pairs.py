"""Pairs of instances that code runs in another order than the schedule: exact, by isl, where sums do not tell."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from itertools import product

from tensorlang import config
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Expr, substitute
from tensorlang.lowering.read_back.left_out import tell
from tensorlang.lowering.read_back.runs import Run
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import Namer, condition_text, index_text
from tensorlang.polyhedral.statement import Access, Scop, Statement

_MOST = 2_000_000
"""Operations of isl for a question; what takes more is left to the tests."""
_QUESTIONS = 500
"""Questions about a kernel, some milliseconds each; where there are more, likewise."""
_DEAR = re.compile(r"floor|mod|not|or")
"""What makes a condition dear: isl divides, and tells cases apart."""


@dataclass(frozen=True, slots=True)
class Questions:
    """What isl is asked about pairs of the runs of a kernel: what is the same but for names and positions, once.

    `answers` are None where there is none: isl takes too long, or there are more questions than `most`.
    """

    scop: Scop
    namer: Namer
    most: float
    answers: dict[str, bool | None] = field(default_factory=dict)

    @staticmethod
    def about(scop: Scop) -> Questions:
        """Questions about a kernel: as many as there are where checks are asked for."""
        return Questions(scop, Namer(scop.sizes), math.inf if config.get("check") else _QUESTIONS)

    def tell(self) -> None:
        """Say how many questions have no answer."""
        unanswered = sum(answer is None for answer in self.answers.values())
        if unanswered:
            tell(f"{unanswered} of {len(self.answers)} questions about the order of two leaves are not answered")

    def are_reversed(self, first: Run, then: Run, common: frozenset[str], stepped: str, sign: str = "<") -> bool:
        """Whether instances may come first in the code, and later (or, by `!=`, at another time) in the schedule.

        They are at equal values of the loops `common`, and the second at a later iteration of the loop `stepped`. Where
        one of them was moved, those count that meet in an element. What isl cannot see counts as reversed; what has no
        answer does not.
        """
        left = {name: f"c{k}" if name in common else f"a{k}" for k, name in enumerate(first.loops)}
        right = {name: left[name] if name in common else f"b{k}" for k, name in enumerate(then.loops)}
        where = [f"{left[stepped]} < {right[stepped]}"] if stepped else []
        for run, names in ((first, left), (then, right)):
            for condition in run.conditions:
                text = condition_text(condition, names, self.namer)
                if text is None:
                    return True
                where.append(text)
        if first.moved or then.moved:
            where.append(f"({_meeting(first, then, self.scop, left, right, self.namer)})")
        dims = ", ".join(dict.fromkeys((*left.values(), *right.values())))
        times = _when(first, self.scop, left, self.namer), _when(then, self.scop, right, self.namer)
        for case in _cases(*times, _free(first, then, self.scop), sign):
            if case is None or self._has_points(dims, [*where, *case]):
                return True
        return False

    def _has_points(self, dims: str, where: Sequence[str]) -> bool:
        """Whether conditions hold somewhere: most pairs are told by the cheap ones, which are asked first."""
        cheapest = sorted(dict.fromkeys(where), key=_cost)
        plain = [condition for condition in cheapest if not _DEAR.search(condition)]
        return self._answer(dims, plain) is not False and self._answer(dims, cheapest) is True

    def _answer(self, dims: str, where: Sequence[str]) -> bool | None:
        text = f"[{dims}] : {' and '.join(where) or '0 = 0'}"
        if text not in self.answers:
            asked = len(self.answers) < self.most
            self.answers[text] = isl.attempt(_MOST, partial(self._ask, text)) if asked else None
        return self.answers[text]

    def _ask(self, text: str) -> bool:
        found = isl.make_set(f"{self.namer.prefix()}{{ {text} }}")
        context = self.namer.context()
        if context:
            found = found.intersect_params(isl.make_set(f"{self.namer.prefix()}{{ : {context} }}"))
        return not found.is_empty()


def _cost(condition: str) -> tuple[bool, bool, int]:
    """In which order isl takes conditions: what equates or bounds loops leaves little for the others to cut up."""
    return _DEAR.search(condition) is not None, " = " not in condition, len(condition)


def _when(run: Run, scop: Scop, names: Mapping[str, str], namer: Namer) -> list[int | str | None]:
    """The time of a run's instances in the schedule; None for what isl cannot see."""
    statement = scop.statements[run.statement]
    values: dict[str, Expr] = dict(zip(statement.loops, run.values, strict=True))
    return [p if isinstance(p, int) else index_text(values[p], dict(names), namer) for p in statement.time]


def _free(first: Run, then: Run, scop: Scop) -> list[bool]:
    """Which entries of times prove no order."""
    pairs = zip(scop.statements[first.statement].time, scop.statements[then.statement].time, strict=False)
    return [a in scop.unordered and b in scop.unordered for a, b in pairs]


def _cases(
    a: Sequence[int | str | None], b: Sequence[int | str | None], free: Sequence[bool], sign: str
) -> Iterator[list[str] | None]:
    """Conditions, by the entry that tells, under which the second time is first; None where isl sees none."""
    equal: list[str] = []
    for x, y, is_free in zip(a, b, free, strict=False):
        if x is None or y is None:
            yield None
            return
        if x == y:
            continue
        if isinstance(x, int) and isinstance(y, int):  # their difference alone counts: many pairs ask the same
            if y < x or sign == "!=":
                yield equal
            return
        if not is_free:
            yield [*equal, f"{y} {sign} {x}"]
        equal.append(f"{x} = {y}")


def _meeting(first: Run, then: Run, scop: Scop, left: Mapping[str, str], right: Mapping[str, str], namer: Namer) -> str:
    """The condition that two instances touch one element, which one of them writes."""
    a, b = scop.statements[first.statement], scop.statements[then.statement]
    pairs = [*product(a.writes, (*b.writes, *b.reads)), *product(a.reads, b.writes)]
    places = [
        _same_place(_place(x, a, first, left, namer), _place(y, b, then, right, namer))
        for x, y in pairs
        if x.array == y.array
    ]
    return " or ".join(f"({place})" for place in places) or "0 = 1"


def _place(access: Access, statement: Statement, run: Run, names: Mapping[str, str], namer: Namer) -> list[str | None]:
    """The element of an access; None for what may be any."""
    values: dict[str, Expr] = dict(zip(statement.loops, run.values, strict=True))
    index = (*(values[name] for name in access.version), *(substitute(i, values) for i in access.index or ()))
    return [index_text(i, dict(names), namer) for i in index]


def _same_place(a: Sequence[str | None], b: Sequence[str | None]) -> str:
    pairs = [(x, y) for x, y in zip(a, b, strict=False) if x is not None and y is not None]
    return " and ".join(f"{x} = {y}" for x, y in pairs) or "0 = 0"
