"""Reductions across the threads of a block (ThreadReduce).

The values are combined in the order of the threads. A device may combine them in another order, so that sums of floats
differ by what rounding allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from tensorlang.ir.device.clock import Array
from tensorlang.ir.device.lanes import Code, Compiler, Mask, State, lanes_of
from tensorlang.ir.device.memory import Value
from tensorlang.ir.stmt import ThreadReduce

_AXES = {"threadIdx.z": 0, "threadIdx.y": 1, "threadIdx.x": 2}
Run: TypeAlias = Callable[[State, Mask], None]


def compile_reduction(compiler: Compiler, stmt: ThreadReduce) -> Run:
    """The function of a reduction across threads."""
    site = compiler.sites.add(stmt)
    values = [compiler.expr(v, site) for v in stmt.values]
    results = [compiler.expr(r, site) for r in stmt.combiner.results]
    indices = [[compiler.expr(i, site) for i in index] for _, index in stmt.targets]
    lhs, rhs = ([v.name for v in side] for side in (stmt.combiner.lhs, stmt.combiner.rhs))
    own = {buffer.scope == "local" for buffer, _ in stmt.targets}
    if len(own) != 1:
        compiler.sites.fault("a reduction goes to arrays of threads and to arrays that they share", site)

    def combined(s: State, one: Sequence[Value], two: Sequence[Value]) -> list[Value]:
        s.values.update(zip(lhs, one, strict=True))
        s.values.update(zip(rhs, two, strict=True))
        found = [result(s, None) for result in results]
        for name in (*lhs, *rhs):
            del s.values[name]
        return found

    def reduce(s: State, mask: Mask) -> None:
        if mask is not None:
            missing = f"{s.clock.thread(int((~mask).argmax()))} of {s.clock.here}"
            compiler.sites.fault(f"{missing} does not come to a reduction across threads", site)
        groups = _Groups(s, stmt.threads)
        rows = [groups.rows(value(s, groups.taking)) for value in values]
        total: list[Value] = [row[0] for row in rows]
        for number in range(1, len(rows[0])):
            total = combined(s, total, [row[number] for row in rows])
        mask = groups.taking if own == {True} else groups.first
        _into_targets(s, mask, [groups.spread(t) for t in total])

    def _into_targets(s: State, mask: Mask, totals: list[Value]) -> None:
        lanes = lanes_of(mask)
        memories = [s.memories[buffer.name] for buffer, _ in stmt.targets]
        places = [m.offset(_evaluated(i, s, mask), lanes, site) for m, i in zip(memories, indices, strict=True)]
        old = [m.read(at, lanes, site) for m, at in zip(memories, places, strict=True)]
        for memory, at, value in zip(memories, places, combined(s, old, totals), strict=True):
            memory.write(at, value, lanes, site)

    return reduce


def _evaluated(index: list[Code], s: State, mask: Mask) -> list[Value]:
    return [part(s, mask) for part in index]


class _Groups:
    """The threads that a reduction combines: `taking` part in it, and `first` of their group."""

    def __init__(self, s: State, threads: Sequence[tuple[str, int]]) -> None:
        x, y, z = s.clock.block
        self._shape = (z, y, x)
        self._extents = {_AXES[tag]: extent for tag, extent in threads}
        places = np.unravel_index(s.clock.lanes, self._shape)
        taking, first = np.ones(s.clock.count, np.bool_), np.ones(s.clock.count, np.bool_)
        for axis, extent in self._extents.items():
            taking &= places[axis] < extent
            first &= places[axis] == 0
        self.taking: Mask = None if taking.all() else taking
        self.first: Mask = None if first.all() else first

    def _by_member(self, lanes: Array) -> Array:
        """A view of something of all threads: members of a group along the first axis, groups along the second one."""
        cut = tuple(slice(self._extents.get(axis)) for axis in range(3))
        inner = [axis for axis in range(3) if axis not in self._extents]
        ordered = lanes.reshape(self._shape)[cut].transpose(*sorted(self._extents), *inner)
        members = int(np.prod(ordered.shape[: len(self._extents)]))
        return ordered.reshape(members, -1)

    def rows(self, value: Value) -> Array:
        """The value of each member, for all groups."""
        members = self._by_member(np.arange(int(np.prod(self._shape))))
        spread = np.broadcast_to(np.asarray(value), int(np.prod(self._shape)))
        return spread[members]

    def spread(self, totals: Value) -> Array:
        """Something of each group, for all threads."""
        members = self._by_member(np.arange(int(np.prod(self._shape))))
        found = np.zeros(int(np.prod(self._shape)), np.asarray(totals).dtype)
        found[members] = totals
        return found
