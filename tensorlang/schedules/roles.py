"""The roles of axes in a reduction with reuse, read off its accesses: vectors, rows of the register tile, the rest."""

from __future__ import annotations

import math

from tensorlang.dataclass import dataclass
from tensorlang.schedules.accesses import NEAR, Access
from tensorlang.schedules.recognise import Stage

THIN = 4  # with fewer rows, an operand is used too little to pay for packing
SMALL_WINDOW = 8
NARROW = 16  # rows that are shorter leave registers idle: a tile takes several of them


@dataclass(frozen=True, slots=True)
class Roles:
    """`vector` runs along vectors, `rows` is unrolled, `around` use the same vectors again, `batch` use others.

    `operand` is the array that is read in vectors; `packable`: a copy of it can be laid out in panels.
    """

    stage: Stage
    vector: str
    rows: str | None
    around: tuple[str, ...]
    batch: tuple[str, ...]
    operand: Access
    packable: bool

    def extent(self, axis: str | None) -> int:
        return 1 if axis is None else self.stage.extents[axis]

    @property
    def contiguous(self) -> bool:
        """Whether vectors are read from memory as they lie, or every second element of that."""
        return self.operand.stride(self.vector) in (1, NEAR)

    @property
    def reuse(self) -> int:
        """How many elements of the output use one vector."""
        return math.prod(self.extent(axis) for axis in (*self.around, self.rows) if axis not in self.operand.axes)

    @property
    def steps(self) -> tuple[str, ...]:
        """The axes of the reduction, outermost first: windows outside, the longest axis inside."""
        return tuple(sorted(self.stage.reduce, key=self.extent))

    @property
    def is_plain(self) -> bool:
        """Whether every index is one axis: no windows slide, nothing is cut off."""
        return all(len(terms) <= 1 for access in self.stage.reads for terms in access.dims)

    @property
    def deep(self) -> str | None:
        """The second axis of rows in a tile, where rows are short."""
        short = self.rows is not None and self.extent(self.rows) < NARROW and self.around
        return self.around[-1] if short and self.extent(self.around[-1]) > 1 else None

    @property
    def beside(self) -> str | None:
        """The axis of which a tile takes several vectors side by side, where vectors are narrow and rows are shared."""
        if self.rows is None or self.extent(self.vector) > NARROW:
            return None
        shared = [read.axes for read in self.stage.reads if self.rows in read.axes]
        found = [axis for axis in self.batch if self.extent(axis) > 1 and not any(axis in axes for axes in shared)]
        return found[-1] if found else None

    @property
    def sliding(self) -> tuple[str, ...]:
        """Axes of the reduction that slide along an axis of the tile."""
        tile = {self.vector, self.rows, self.deep}
        found = {
            axis
            for access in self.stage.reads
            for terms in access.dims
            if tile & {other for other, _ in terms}
            for axis, _ in terms
            if axis in self.stage.reduce
        }
        return tuple(axis for axis in self.steps if axis in found)

    @property
    def windows(self) -> tuple[str, ...]:
        """The short ones of these, which may be written out."""
        return tuple(axis for axis in self.sliding if self.extent(axis) <= SMALL_WINDOW)


def roles_of(stage: Stage, vector: str) -> Roles | None:
    """The roles where vectors run along an axis; None when nothing is read along it, or not usefully."""
    moved = [read for read in stage.reads if vector in read.axes]
    if not moved:
        return None
    operand = max(moved, key=lambda a: (a.stride_one(vector), a.stride(vector) == NEAR, len(a.axes)))
    others = [axis for axis in stage.spatial if axis != vector]
    free = [axis for axis in others if axis not in operand.axes]
    rows = next((axis for axis in reversed(free or others) if stage.extents[axis] > 1), None)
    around = tuple(axis for axis in free if axis != rows)
    batch = tuple(axis for axis in others if axis not in (rows, *around))
    roles = Roles(stage, vector, rows, around, batch, operand, _is_packable(operand, vector))
    gathers = [a for a in moved if not a.stride_one(vector) and a is not operand]
    useful = roles.contiguous or (roles.packable and roles.reuse >= THIN)
    return roles if useful and not gathers else None


def all_roles(stage: Stage, lanes: int) -> tuple[Roles, ...]:
    """The roles worth trying, best guess first: vectors along the output's memory, or along another axis."""
    if not stage.reduce or not stage.spatial or len(stage.op.body) > 1:
        return ()
    *others, last = stage.spatial
    found = [roles for axis in (last, *others) if (roles := roles_of(stage, axis)) is not None]
    found = [r for r in found if r.extent(r.vector) >= max(2, lanes // 2)] or found
    if not found:
        return ()
    along = [r for r in found if r.vector == last]
    if along and along[0].is_plain:
        return tuple(along)
    # Vectors along memory waste lanes where rows are short or windows slide: another operand may be packed instead.
    across = [r for r in found if r.vector != last and (r.contiguous or r.packable)]
    return (*across[:1], *along) if across and not along else (*along, *across[:1])


def _is_packable(operand: Access, vector: str) -> bool:
    """Whether the vector axis alone is one dimension, and the others are single axes."""
    own = [terms for terms in operand.dims if any(axis == vector for axis, _ in terms)]
    return own == [((vector, 1),)] and all(len(terms) <= 1 for terms in operand.dims)


def terms_of(stage: Stage) -> tuple[str, ...]:
    """As many axes of the reduction as possible along which all reads that they move lie; none when there are none."""
    along = [_along(stage, read) for read in stage.reads]
    longest = max(along, key=len, default=())
    for terms in (longest[n:] for n in range(len(longest))):
        moved = [found for read, found in zip(stage.reads, along, strict=True) if read.axes & set(terms)]
        if all(found[-len(terms) :] == terms for found in moved):
            return terms
    return ()


def _along(stage: Stage, read: Access) -> tuple[str, ...]:
    """The axes of the reduction that are the last dimensions of a read; all but the first are read as a whole."""
    found: list[str] = []
    for terms, size in reversed([*zip(read.dims, read.shape, strict=True)]):
        ((axis, coefficient),) = terms if len(terms) == 1 else (("", 0),)
        if coefficient != 1 or axis not in stage.reduce or axis in found:
            break
        found.append(axis)
        if stage.extents[axis] != size:
            break
    return tuple(reversed(found))
