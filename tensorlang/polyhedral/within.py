"""Which accesses stay inside their arrays by the ranges of loops and one condition: no question that needs isl.

Most do, and isl takes half a millisecond to read a question. What is not told here is left to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tensorlang.dataclass import dataclass
from tensorlang.ir.affine import Affine, add, affine, nonnegative
from tensorlang.ir.expr import Binary, Expr
from tensorlang.te.exact import Interval, reach


@dataclass(frozen=True, slots=True)
class Known:
    """What holds at an access: sums that are at least 0, and ranges of variables."""

    sums: tuple[Affine, ...]
    ranges: Mapping[str, Interval]
    least: Mapping[str, int]
    most: Mapping[str, int]

    @classmethod
    def of(cls, conditions: Iterable[Expr], sizes: Iterable[str]) -> Known:
        """By conditions that all hold, over sizes that are never negative."""
        sums = tuple(form for condition in conditions for part in _parts(condition) for form in nonnegative(part))
        least, most = dict.fromkeys(sizes, 0), dict[str, int]()
        for form in sums:
            constant = form.get("", 0)
            match [(name, factor) for name, factor in form.items() if name]:
                case [(name, 1)]:
                    least[name] = max(least.get(name, -constant), -constant)
                case [(name, -1)]:
                    most[name] = min(most.get(name, constant), constant)
        ranges = {name: (low, most[name]) for name, low in least.items() if name in most}
        return cls(sums, ranges, least, most)

    def is_inside(self, index: Expr, size: Expr) -> bool:
        """Whether an index that isl can see is one of `size` places, as far as can be told here."""
        last = affine(size)
        if last is None:
            return False
        reached = reach(index, self.ranges)
        if reached is not None and reached[0] >= 0 and set(last) <= {""} and reached[1] < last.get("", 0):
            return True
        form = affine(index)
        if form is None:
            return False
        return self._is_natural(form) and self._is_natural(add(add(last, form, -1), {"": -1}))

    def _is_natural(self, form: Affine) -> bool:
        """Whether a sum is at least 0: by the ranges, or since it is one that is, and something more."""
        return self._is_least(form) or any(self._is_least(add(form, known, -1)) for known in self.sums)

    def _is_least(self, form: Affine) -> bool:
        low = form.get("", 0)
        for name, factor in form.items():
            if name:
                end = (self.least if factor > 0 else self.most).get(name)
                if end is None:
                    return False
                low += factor * end
        return low >= 0


def _parts(condition: Expr) -> Iterator[Expr]:
    """What holds where a condition does."""
    waiting = [condition]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Binary) and part.op == "and":
            waiting += [part.b, part.a]
        else:
            yield part
