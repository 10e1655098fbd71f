"""Schedules of sketches: proven once, at the end, because every candidate is proven again before it is built."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Self

from tensorlang.autotune.model.follow import Move
from tensorlang.autotune.model.nests import Scheduled
from tensorlang.autotune.search.sketch import Sketch
from tensorlang.polyhedral.extract import check_bounds
from tensorlang.schedule import Schedule
from tensorlang.schedule.check import verify
from tensorlang.schedule.primitive import Outputs, Primitive
from tensorlang.schedules.room import Constraint
from tensorlang.te.operation import Tensor
from tensorlang.te.program import canonical


class Draft(Schedule):
    """A schedule whose steps are applied without proof, and remembered; `attempt` and `prove` ask for one."""

    _moves: tuple[Move, ...] = ()

    @classmethod
    def of(cls, outputs: Sequence[Tensor]) -> Self:
        """The default schedule of the program that computes `outputs`."""
        program, names = canonical(outputs)
        check_bounds(program)
        return cls(program, names, outputs)

    def apply(self, step: Primitive) -> Outputs:
        """Apply one step; only its arguments are checked."""
        return self.advance(step, check=False)

    def advance(self, step: Primitive, check: bool) -> Outputs:
        """Apply one step and remember what it made."""
        before = self._state
        made = super().advance(step, check)
        self._moves = (*self._moves[: len(self.trace.steps) - 1], Move(step, made, before, self._state))
        return made

    def prove(self) -> Self:
        """Return the schedule; ScheduleError when it is not legal."""
        verify(self._state)
        return self

    @property
    def scheduled(self) -> Scheduled:
        """What the cost model needs to know of this schedule."""
        return Scheduled(self.original, self._moves[: len(self.trace.steps)], self.state)


def sketch_of(
    name: str, draft: Draft, constraints: Iterable[Constraint] = (), start: Mapping[str, int] | None = None
) -> Sketch:
    """The sketch of a draft: its trace, what that leaves open, and its nests. ScheduleError when it is not legal."""
    scheduled = draft.prove().scheduled
    return Sketch(name, draft.trace, draft.trace.open, tuple(constraints), scheduled.nests, start)
