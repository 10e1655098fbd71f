"""A block of threads: how the axes of an output are cut for it, and what a GPU allows of one.

Every axis of the tile is cut four times: blocks, virtual threads, threads, and the elements that a thread computes in
loops of its own. The limits are asked of columns of decisions, in closed form, before anything is scheduled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod

import numpy as np

from tensorlang.dataclass import dataclass
from tensorlang.schedule import Decision
from tensorlang.schedules.accesses import Access, Array, footprint
from tensorlang.schedules.candidates import powers, up_to
from tensorlang.schedules.gpu.blocks import limits
from tensorlang.schedules.room import Columns, Mask, Room

TAGS = ("x", "y", "z")
INNER = (1, 2, 4, 8)
VIRTUAL = (1, 2, 4)
MOST_THREADS_ALONG = 256
MOST_WASTE = 1.5
"""Iterations walked over iterations needed, where tiles do not divide their axes."""
SPARE_REGISTERS = 24
"""That addresses and loop variables take at least, beside the arrays of a thread."""
WORD = 4


@dataclass(frozen=True, slots=True)
class Side:
    """One axis of a tile: its extent, and how it is cut."""

    axis: str
    tag: str
    extent: int
    virtual: Decision
    threads: Decision
    inner: Decision

    def tile(self, values: Columns, room: Room) -> Array:
        """Elements of the axis in a block."""
        return np.asarray(math_product(values[name] for name in self.names(room)))

    def names(self, room: Room) -> tuple[str, ...]:
        """The short names of its decisions."""
        return tuple(d.name.removeprefix(room.prefix) for d in (self.virtual, self.threads, self.inner))


def math_product(columns: Iterable[Array]) -> Array:
    """The product of columns."""
    total = np.ones(1)
    for column in columns:
        total = total * column
    return np.asarray(total)


def sizes(extent: int, most: int) -> tuple[int, ...]:
    """Powers of two that an axis fills, and its divisors, up to `most`."""
    limit = min(extent, most)
    divisors = [n for n in range(1, limit + 1) if extent % n == 0] if extent % 2**5 else []
    return tuple(sorted({n for n in (*powers(limit), *divisors) if n <= limit}))


def choose_sides(room: Room, axes: Sequence[tuple[str, int]], inner: Sequence[int] = INNER) -> tuple[Side, ...]:
    """Leave open how the axes of a tile are cut; the first of them, the one along memory, is x."""
    found = []
    for tag, (axis, extent) in zip(TAGS, axes, strict=False):
        virtual = room.leave_open(f"virtual_{tag}", up_to(VIRTUAL, extent))
        most = min(limits(room.target).block[TAGS.index(tag)], MOST_THREADS_ALONG)
        threads = room.leave_open(f"threads_{tag}", sizes(extent, most))
        own = {*up_to(inner, extent), *(n for n in (3, 5, 7) if extent % n == 0 and extent % 2)}
        found.append(Side(axis, tag, extent, virtual, threads, room.leave_open(f"inner_{tag}", sorted(own))))
    return tuple(found)


def limit_threads(room: Room, names: Sequence[str], wanted: float, least: int | None = None) -> None:
    """Keep the product of decisions within a block, and not below a warp where there is work for more threads."""
    own = limits(room.target)
    lowest = int(min(own.warp if least is None else least, max(1.0, wanted), own.max_threads))

    def fits(values: Columns) -> Mask:
        threads = math_product(values[name] for name in names)
        return np.asarray((threads <= own.max_threads) & (threads >= lowest))

    room.limit(f"a block has {lowest} to {own.max_threads} threads", fits)


def limit_waste(room: Room, sides: Sequence[Side], further: Mapping[str, int] | None = None) -> None:
    """Keep the iterations beyond the ends of axes few; `further` axes are cut by one decision each."""
    cut = dict(further or {})

    def few(values: Columns) -> Mask:
        waste = np.ones(1)
        for side in sides:
            waste = waste * _waste(side.extent, side.tile(values, room))
        for name, extent in cut.items():
            waste = waste * _waste(extent, values[name])
        return np.asarray(waste <= MOST_WASTE)

    room.limit(f"tiles walk at most {MOST_WASTE} times the elements of their axes", few)


def _waste(extent: int, tile: Array) -> Array:
    return np.asarray(np.ceil(extent / tile) * tile / extent)


def limit_grid(room: Room, sides: Sequence[Side], others: int) -> None:
    """Keep the blocks along each axis within the grid; `others` blocks share z with the third side."""
    most = limits(room.target).grid

    def fits(values: Columns) -> Mask:
        good = np.ones(1, dtype=bool)
        for side in sides:
            blocks = np.ceil(side.extent / side.tile(values, room)) * (others if side.tag == "z" else 1)
            good = good & (blocks <= most[TAGS.index(side.tag)])
        return np.asarray(good & (len(sides) > 2 or others <= most[2]))

    room.limit("the grid has room for all blocks", fits)


def limit_shared(room: Room, bytes_of: Callable[[Columns], Array]) -> None:
    """Keep what a block shares within its memory."""
    most = limits(room.target).shared_bytes
    room.limit(f"a block has {most} bytes of shared memory", lambda values: np.asarray(bytes_of(values) <= most))


def limit_registers(room: Room, words_of: Callable[[Columns], Array]) -> None:
    """Keep the arrays of a thread within its registers, and those of a block within a multiprocessor's."""
    own = limits(room.target)
    most = own.thread_registers

    def fits(values: Columns) -> Mask:
        return np.asarray(words_of(values) + SPARE_REGISTERS <= most) if most else np.ones(1, dtype=bool)

    room.limit(f"a thread has {most} registers", fits)


def footprint_bytes(access: Access, tile: Mapping[str, Array]) -> Array:
    """Bytes of an array that a tile of axes touches."""
    count = max((column.size for column in tile.values()), default=1)
    return np.asarray(footprint(access, dict(tile), count).elements * access.itemsize)


def words(elements: Array, bits: int) -> Array:
    """Registers that some elements take."""
    return np.asarray(np.ceil(elements * bits / 8 / WORD))


def points(extents: Mapping[str, int], axes: Iterable[str]) -> int:
    """Iterations of some axes."""
    return prod(extents[axis] for axis in axes)
