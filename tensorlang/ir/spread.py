"""Arrays in the registers of a warp that have no fragment: who shares them, and which lane has an element where."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tensorlang.dataclass import dataclass
from tensorlang.errors import TargetError
from tensorlang.ir.expr import Buffer, Expr, Var, binary
from tensorlang.ir.flat import flat_offset, row_major
from tensorlang.ir.simplify import simplify
from tensorlang.ir.simplify.forms import Range
from tensorlang.ir.stmt import INDEX
from tensorlang.ir.thread_tags import THREADS

LANES = (1, 2, 4, 8, 16, 32)
"""How many threads may share the memory of a warp."""


@dataclass(frozen=True, slots=True)
class Group:
    """The threads along some axes, that exchange what they have in registers; `number` is that of a thread."""

    axes: tuple[str, ...]
    lanes: int
    number: Expr


def group_of(array: str, block: Mapping[str, int]) -> Group:
    """The threads that share the memory of a warp: those along x, and along y where these are fewer than a warp.

    TargetError where there are not as many as a part of a warp has.
    """
    along = [block.get(tag, 1) for tag in THREADS[:2]]
    axes = THREADS[:1] if along[0] >= LANES[-1] or along[1] == 1 else THREADS[:2]
    lanes = prod(along[: len(axes)])
    if lanes not in LANES:
        raise TargetError(
            f"{array} is in the registers of the threads along {' and '.join(axes)}, and there are {lanes} of them; a "
            f"warp has {LANES[-1]}: bind loops of 2, 4, 8, 16 or 32 iterations to {' and '.join(axes)}, and the loops "
            "around them to the axes after"
        )
    number: Expr = Var(THREADS[0], INDEX)
    return Group(axes, lanes, number if len(axes) == 1 else binary("add", number, Var(THREADS[1], INDEX) * along[0]))


@dataclass(frozen=True, slots=True)
class Spread:
    """How an array lies in the registers of lanes.

    The dimensions from `first` to before `last`, taken as one of `extent` elements, count `unit` elements of one lane,
    then those of the next. `buffer` is the array of one thread, with one dimension in their place.
    """

    buffer: Buffer
    first: int
    last: int
    unit: int
    lanes: int
    extents: tuple[int, ...]

    def place(self, index: tuple[Expr, ...], ranges: Mapping[str, Range]) -> tuple[Expr, tuple[Expr, ...]]:
        """The lane that has an element, and the index in the array of that lane."""
        run = flat_index(index, self.extents, self.first, self.last, ranges)
        lane = simplify(binary("floormod", binary("floordiv", run, self.unit), self.lanes), ranges)
        round_ = binary("mul", binary("floordiv", run, self.unit * self.lanes), self.unit)
        register = simplify(binary("add", round_, binary("floormod", run, self.unit)), ranges)
        return lane, (*index[: self.first], register, *index[self.last :])


def flat_index(
    index: tuple[Expr, ...], extents: tuple[int, ...], first: int, last: int, ranges: Mapping[str, Range]
) -> Expr:
    """The index in some dimensions taken as one."""
    return flat_offset(index[first:last], row_major(extents[first:last]), ranges)
