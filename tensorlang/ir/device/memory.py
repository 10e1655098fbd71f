"""Arrays as the threads of a block see them: elements in rows of lanes, with checks of every access.

Shared and global arrays are flat. A local one has a row for each element, with the element of each thread in it; one of
scope `warp` has that of each group of lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir import scalar
from tensorlang.ir.device.clock import Array, Clock, Lanes
from tensorlang.ir.device.races import Races
from tensorlang.ir.device.sites import Sites
from tensorlang.ir.expr import Buffer

Offset: TypeAlias = Any  # an integer where all threads go to one element, else an array of one for each lane at work
Value: TypeAlias = Any  # a NumPy scalar where all threads have one value, else an array over all threads
Update: TypeAlias = Callable[[Any, Any], Any]

_SMALL = 1 << 16  # elements that it is worth to look through at a barrier


@dataclass(slots=True)
class Storage:
    """Elements, flat, and which of them hold a value: None when all do."""

    shape: tuple[int, ...]
    data: Array
    written: Array | None

    @staticmethod
    def fresh(buffer: Buffer, shape: Sequence[int], threads: tuple[int, ...] = ()) -> Storage:
        """Scratch memory as nobody has written it; `threads`: how many have elements of their own."""
        size = (int(np.prod(shape, dtype=np.int64)), *threads)
        data = np.full(size, scalar.unwritten(buffer.dtype), dtypes.info(buffer.dtype).numpy)
        return Storage(tuple(shape), data, np.zeros(size, np.bool_))

    def forget(self, dtype: str) -> None:
        """Make it fresh again."""
        self.data[...] = scalar.unwritten(dtype)
        if self.written is not None:
            self.written[...] = False


class Memory:
    """The accesses of the threads of a launch to one array. `lanes` are the threads at work.

    Of a local array each group of `own` neighbours has one: one thread, or several lanes. Every access names its
    statement by its `site`. InternalError on an index outside the array, on a read of an element without a value, and
    on a race. `check` turns the last two off.
    """

    def __init__(self, buffer: Buffer, storage: Storage, clock: Clock, sites: Sites, check: bool, own: int = 1) -> None:
        self.buffer = buffer
        self.shape = storage.shape
        self.data = storage.data
        self.clock = clock
        self.sites = sites
        self.check = check
        self.written = storage.written if check else None
        self.pending: Array | None = None
        self.lent: Array | None = None
        self.busy: tuple[Array, Array] | None = None
        self._local = buffer.scope in ("local", "warp")
        self._alone = own == 1
        self._columns = clock.lanes // own
        self._races: Races | None = None
        self._storage = storage
        self._whole = False  # every element is written
        self._rows: set[int] = set()  # of a local array: written by all threads
        self._tracked = self.written is not None

    def watch(self, warps: bool, blocks: bool) -> None:
        """Look for races from here on; of warps when threads of one wait for each other, and of blocks."""
        self._races = Races(self.data.size, self.clock, self.sites, self.element, warps, blocks)
        self.clock.before_barrier.append(self._races.examine)
        if self.written is not None and self.written.size <= _SMALL:
            self.clock.before_barrier.append(self._see_whole)
        self._tracked = True

    def forget(self) -> None:
        """Make the array fresh again."""
        self._storage.forget(self.buffer.dtype)
        self.pending = None
        self._whole = False

    def _see_whole(self) -> None:
        if not self._whole and self.written is not None:
            self._whole = bool(self.written.all())

    def copies(self) -> Array:
        """The thread, plus one, whose copy to each element is under way; 0 for none. From here on it is looked at."""
        if self.pending is None:
            self.pending = np.zeros(self.data.size, np.int32)
        return self.pending

    def lend(self, at: Array, count: int) -> None:
        """Say that so many copies more, or less, read elements."""
        if self._tracked:
            if self.lent is None:
                self.lent = np.zeros(self.data.size, np.int32)
            np.add.at(self.lent, at, count)

    def engage(self, at: Array, count: int, writes: bool) -> None:
        """Say that machine code under way reads, or writes, elements so many times more, or less; flat offsets."""
        if self.busy is None:
            self.busy = np.zeros(self.data.size, np.int32), np.zeros(self.data.size, np.int32)
        np.add.at(self.busy[writes], at, count)

    def seen(self, at: Array, lanes: Array, site: int) -> None:
        """Record that threads have read elements until now."""
        if self._tracked and not self._local:
            self._note("read", at, lanes, site)

    def offset(self, index: Sequence[Value], lanes: Lanes, site: int, reach: int = 1) -> Offset:
        """Where elements are; `reach`: how many neighbours of each are wanted."""
        at: Offset = 0
        for dim, (part, extent) in enumerate(zip(index, self.shape, strict=True)):
            room = extent - reach + 1 if dim + 1 == len(index) else extent
            if isinstance(part, np.ndarray):
                if lanes is not None:
                    part = part[lanes]
                if room <= 0 or (part.view(np.uint64) >= np.uint64(room)).any():
                    self._outside(index, lanes, site, dim, room)
            elif not 0 <= part < room:
                self._outside(index, lanes, site, dim, room)
            at = at * extent + part if dim else part
        return at

    def read(self, at: Offset, lanes: Lanes, site: int) -> Value:
        """The values of elements, for all threads; those not at work get any."""
        if self._local:
            return self._read_row(at, lanes, site)
        if not isinstance(at, np.ndarray):
            if self._tracked:
                self._note("read", self._spread(at, lanes), lanes, site)
            return self.data[at]
        if self._tracked:
            self._note("read", at, lanes, site)
        return self._all_lanes(self.data[at], lanes)

    def write(self, at: Offset, value: Value, lanes: Lanes, site: int) -> None:
        """Set elements, each by one thread."""
        if lanes is not None and isinstance(value, np.ndarray):
            value = value[lanes]
        if self._local:
            self._used_row(at, lanes, site, writes=True)
            self._write_row(at, value, lanes)
            return
        at = self._spread(at, lanes)
        if self._tracked:
            self._note("write", at, lanes, site)
        self.data[at] = value
        if self.written is not None:
            self.written[at] = True

    def update(self, at: Offset, function: Update, value: Value, lanes: Lanes, site: int) -> None:
        """Set elements to `function(element, value)`, by one thread after the other."""
        at = self._spread(at, lanes)
        values = np.broadcast_to(value, self.clock.count)
        values = values if lanes is None else values[lanes]
        if self._local:
            everyone = self.clock.lanes if lanes is None else lanes
            self._written_row(at, lanes, site)
            self.data[at, everyone] = function(self.data[at, everyone], values)
            return
        if self._tracked:
            self._note("update", at, lanes, site)
        left = np.arange(len(at))
        while len(left):
            where, first = np.unique(at[left], return_index=True)
            self.data[where] = function(self.data[where], values[left[first]])
            left = np.delete(left, first)

    def reserve(self, at: Array, mine: Array, site: int) -> None:
        """Record that copies to elements begin; `mine`: the thread of each."""
        if self._tracked:
            self._note("write", at, mine, site)

    def arrive(self, at: Array, mine: Array, site: int) -> None:
        """Record that copies to elements are done."""
        if self._tracked:
            self._note("write", at, mine, site)
        if self.written is not None:
            self.written[at] = True

    def _spread(self, at: Offset, lanes: Lanes) -> Array:
        if isinstance(at, np.ndarray):
            return at
        return np.full(self.clock.count if lanes is None else len(lanes), at, np.int64)

    def _all_lanes(self, values: Array, lanes: Lanes) -> Array:
        if lanes is None:
            return values
        spread = np.zeros(self.clock.count, values.dtype)
        spread[lanes] = values
        return spread

    def _read_row(self, at: Offset, lanes: Lanes, site: int) -> Value:
        self._used_row(at, lanes, site, writes=False)
        self._written_row(at, lanes, site)
        if not isinstance(at, np.ndarray):
            return self.data[at].copy() if self._alone else self.data[at][self._columns]
        return self._all_lanes(self.data[at, self._mine(lanes)], lanes)

    def _written_row(self, at: Offset, lanes: Lanes, site: int) -> None:
        if self.written is None or (not isinstance(at, np.ndarray) and at in self._rows):
            return
        found = self.written[at, self._mine(lanes)]
        if not found.all():
            lane = int((~found).argmax())
            self._unwritten(at if not isinstance(at, np.ndarray) else at[lane], _lane(lanes, lane), site)

    def _write_row(self, at: Offset, value: Value, lanes: Lanes) -> None:
        where: Any = at
        if lanes is not None or isinstance(at, np.ndarray) or not self._alone:
            where = (at, self._mine(lanes))
        self.data[where] = value
        if self.written is not None:
            self.written[where] = True
            if where is at and not isinstance(at, np.ndarray):
                self._rows.add(at)

    def _used_row(self, at: Offset, lanes: Lanes, site: int, writes: bool) -> None:
        """Look whether machine code under way works on elements of threads, or note that some is to."""
        if self.clock.touched is None and self.busy is None:
            return
        mine = self.clock.lanes if lanes is None else lanes
        flat = at * self.data.shape[-1] + self._mine(lanes)
        if self.clock.touched is not None:
            self.clock.touched.append((self, flat, mine, writes))
            return
        self._in_code(flat, np.broadcast_to(at, len(mine)), mine, "write" if writes else "read", site)

    def _in_code(self, flat: Array, at: Array, mine: Array, access: str, site: int) -> None:
        """Look whether machine code under way works on elements that threads use otherwise."""
        assert self.busy is not None
        read, written = (counts[flat] > 0 for counts in self.busy)
        used = written if access == "read" else read | written
        if used.any():
            k = int(used.argmax())
            who = f"{self.clock.thread(int(mine[k]))} of {self.clock.here} {access}s {self.element(at[k])}"
            what = "writes" if written[k] else "reads"
            self.sites.fault(f"{who} while machine code that {what} it is under way", site)

    def _mine(self, lanes: Lanes) -> Array:
        """Where the own elements of threads are in a row."""
        columns: Array = self._columns if lanes is None else self._columns[lanes]
        return columns

    def _note(self, access: str, at: Array, lanes: Lanes, site: int) -> None:
        """Record accesses, and look for what is wrong with them."""
        if self.pending is not None and self.pending[at].any():
            self._under_way(access, at, lanes, site)
        if self.lent is not None and access != "read" and self.lent[at].any():
            lane = int((self.lent[at] != 0).argmax())
            who = f"{self.clock.thread(_lane(lanes, lane))} of {self.clock.here}"
            self.sites.fault(f"{who} {access}s {self.element(at[lane])} while a copy from it is under way", site)
        if self.busy is not None and self.clock.touched is None:
            self._in_code(at, at, self.clock.lanes if lanes is None else lanes, access, site)
        flags = None if self._whole or access == "write" else self.written
        if flags is not None and not (found := flags[at]).all():
            lane = int((~found).argmax())
            self._unwritten(int(at[lane]), _lane(lanes, lane), site)
        if self.clock.touched is not None:
            self.clock.touched.append((self, at, self.clock.lanes if lanes is None else lanes, access != "read"))
        if self._races is not None:
            self._races.note(access, at, lanes, site)
            if access == "read" and self.clock.together:
                self._races.note(access, at, (self.clock.lanes if lanes is None else lanes) ^ 1, site)

    def element(self, at: int) -> str:
        """`name[i, j]` of an offset."""
        where = np.unravel_index(int(at), self.shape) if self.shape else ()
        return f"{self.buffer.name}[{', '.join(str(int(i)) for i in where)}]"

    def _unwritten(self, at: int, lane: int, site: int) -> NoReturn:
        who = f"{self.clock.thread(lane)} of {self.clock.here}"
        self.sites.fault(f"{who} reads {self.element(at)} in {self.buffer.scope} memory before it is written", site)

    def _under_way(self, access: str, at: Array, lanes: Lanes, site: int) -> NoReturn:
        assert self.pending is not None
        position = int((self.pending[at] != 0).argmax())
        copier = self.clock.thread(int(self.pending[at[position]]) - 1)
        who = f"{self.clock.thread(_lane(lanes, position))} of {self.clock.here}"
        element = self.element(int(at[position]))
        self.sites.fault(f"{who} {access}s {element} while a copy to it by {copier} is under way", site)

    def _outside(self, index: Sequence[Value], lanes: Lanes, site: int, dim: int, room: int) -> NoReturn:
        part = index[dim]
        lane = 0 if lanes is None else int(lanes[0])
        if isinstance(part, np.ndarray):
            out = (part < 0) | (part >= room)
            lane = int(out.argmax()) if lanes is None else int(lanes[out[lanes].argmax()])
        where = [int(i[lane]) if isinstance(i, np.ndarray) else int(i) for i in index]
        who = f"{self.clock.thread(lane)} of {self.clock.here}"
        element = f"{self.buffer.name}[{', '.join(map(str, where))}]"
        self.sites.fault(f"{who} goes to {element}, outside its shape {self.shape}", site)


def _lane(lanes: Lanes, position: int) -> int:
    return position if lanes is None else int(lanes[position])
