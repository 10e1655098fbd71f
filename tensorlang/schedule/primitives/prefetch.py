"""Elements that later iterations read, brought closer early: prefetch."""

from __future__ import annotations

from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.errors import BadArgument
from tensorlang.schedule.names import nearest
from tensorlang.schedule.primitive import Outputs, Primitive, StageName, primitive, value_of
from tensorlang.schedule.state import Prefetched, ScheduleState

LEVELS = (1, 2, 3)
"""Caches, the nearest first."""


@primitive("prefetch")
@dataclass(frozen=True, slots=True)
class Prefetch(Primitive):
    """At the start of each iteration of a loop, prefetch what the iteration `offset` later reads of a tensor.

    There is a prefetch for every cache line. No value changes, and beyond the end of an array a prefetch does nothing.
    Where an input says which element is read (`rows[table[i]]`), it is looked up, inside of its bounds.
    With `along`, a loop around: what is read at this place when that loop is `offset` iterations further.
    With `shared`, a loop around whose iterations all read the same: each of them prefetches a part of it.
    `level`: the cache of a CPU that it is brought into, 1 the nearest. From far away the second takes more at a time.
    Rewrite: `for i: S(A[i, :])` -> `for i: prefetch A[i + offset, 0], A[i + offset, 16], ...; S(A[i, :])`; along j:
    `for j: for k: S(B[k, j])` -> `for j: for k: prefetch B[k, j + offset]; S(B[k, j])`.
    Legal when: the stage reads the tensor in the loop, and the tensor is not computed inside it (nor inside `along`).
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((64, 64), name="A")
        >>> B = te.compute((64, 64), lambda i, j: A[i, j] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> s[B].prefetch(A, "i", 1)
    """

    stage: StageName
    tensor: str
    axis: str
    offset: int
    along: str = ""
    shared: str = ""
    level: int = 1

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        state.looped(self.stage)
        program = state.program
        if self.tensor not in program.buffers:
            raise BadArgument("", f"no tensor {self.tensor!r}; {nearest(self.tensor, program.buffers)}")
        if self.stage not in program.consumers[program.producer[self.tensor]]:
            read = [b for b, producer in program.producer.items() if self.stage in program.consumers[producer]]
            raise BadArgument("", f"{self.stage} does not read {self.tensor}; {nearest(self.tensor, read)}")
        axis = state.leaf(self.stage, self.axis)
        if isinstance(self.offset, bool) or not isinstance(self.offset, int):
            raise BadArgument("", f"offset must be a whole number, got {self.offset!r}")
        if self.level not in LEVELS:
            raise BadArgument("", f"level must be {' or '.join(map(str, LEVELS))}, got {self.level!r}")
        current, offset = state.stages[self.stage], value_of(self.offset, state)
        asked = Prefetched(self.tensor, axis, offset, self.along or axis, self.shared, self.level)
        return state.with_stage(replace(current, prefetched=(*current.prefetched, asked))), ()
