"""Where a rule works: the draft of a schedule, the stages that it may shape, and the decisions that it leaves open."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tensorlang.dataclass import dataclass
from tensorlang.errors import ScheduleError
from tensorlang.ir.expr import Expr
from tensorlang.schedule import Decision, Schedule
from tensorlang.schedules.accesses import Array
from tensorlang.target.spec import Target

Columns = Mapping[str, Array]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Constraint:
    """A limit of the device on decisions, checked before any build. `text` names it for the user.

    `prefix`: it looks only at decisions whose names begin so.
    """

    text: str
    holds: Callable[[Columns], Mask]
    prefix: str = ""


def as_index(size: int) -> Expr | int:
    """A size in an index expression, so that layouts follow what is decided later."""
    return size.as_expr() if isinstance(size, Decision) else size


def is_several(number: int) -> bool:
    """Whether a number is more than one, or may be: it is a decision."""
    return isinstance(number, Decision) or number > 1


@dataclass(slots=True)
class Room:
    """The part of a schedule around one `stage` that a form shapes. Its decisions bear the `prefix`.

    In a `closed` one the usual sizes are taken, and nothing is left open; `given` are sizes that somebody has chosen.
    """

    s: Schedule
    target: Target
    stage: str
    prefix: str = ""
    constraints: list[Constraint] = field(default_factory=list)
    closed: bool = False
    given: Mapping[str, int] = field(default_factory=dict)

    def of(self, stage: str, target: Target) -> Room:
        """The room of a stage that is shaped together with this one's. What limits either limits both."""
        return replace(self, target=target, stage=stage, prefix=f"{self.prefix}{prefix_of(stage)}")

    def choose(self, name: str, candidates: Iterable[int], usual: int | None = None) -> int:
        """A number left open, the `usual` one among its candidates; in a closed room that one, or the first."""
        values = tuple(candidates)
        if name in self.given:
            return self.given[name]
        if usual is not None and usual not in values:
            values = tuple(sorted((*values, usual)))
        taken = values[0] if usual is None else usual
        return taken if self.closed else self.leave_open(name, values, taken)

    def leave_open(self, name: str, candidates: Iterable[int], usual: int | None = None) -> Decision:
        """A number that is decided later."""
        return self.s.sample_choice(self.full(name), candidates=tuple(candidates), decision=usual)

    def full(self, name: str) -> str:
        """The name of one of this room's decisions in the trace."""
        return f"{self.prefix}{name}"

    def limit(self, text: str, holds: Callable[[Columns], Mask]) -> None:
        """Allow only some decisions; `holds` sees them under their short names."""
        prefix = self.prefix

        def limited(values: Columns) -> Mask:
            own = {n.removeprefix(prefix): column for n, column in values.items() if n.startswith(prefix)}
            return np.asarray(holds(own))

        where = f" of {self.stage}" if prefix else ""
        self.constraints.append(Constraint(f"{text}{where}", limited, prefix))

    def limit_tile(self, bits: int, rows: Iterable[str], width: str, unroll: str) -> None:
        """Keep the product of some decisions, rows times vectors, within the registers and an unrolled body short.

        The vectors of a row are those of `width`, as often as a decision `beside` says.
        """
        registers, lanes, names = self.target.vector_registers, self.target.lanes(bits), tuple(rows)

        def fits_registers(values: Columns) -> Mask:
            tall, vectors = _product(values, names), _product(values, ("beside",)) * np.ceil(values[width] / lanes)
            # With one vector a row, the broadcast folds into the multiply-add.
            return np.asarray(tall * vectors + np.where(vectors > 1, vectors + 1, 1) <= registers)

        def is_short(values: Columns) -> Mask:
            steps = _product(values, (*names, "beside", unroll))
            return np.asarray(steps * np.ceil(values[width] / lanes) <= MOST_UNROLLED)

        self.limit(f"the register tile fits {registers} vector registers", fits_registers)
        self.limit(f"an unrolled body has at most {MOST_UNROLLED} vector operations", is_short)


MOST_UNROLLED = 256
Rooms: TypeAlias = Callable[[str], Room]
"""Makes the room of a stage."""


@dataclass(frozen=True, slots=True)
class Form:
    """One shape of schedule that a rule proposes for a group, and `why`."""

    name: str
    apply: Callable[[Room], object]
    why: str = ""


def _product(values: Columns, names: Iterable[str]) -> Mask:
    total = np.ones(1)
    for name in names:
        if name in values:
            total = total * values[name]
    return np.asarray(total)


def waits(room: Room, stage: str, axis: str) -> bool:
    """Whether the iterations of a loop have to wait for each other."""
    try:
        room.s.again()[stage].parallel(axis)
    except ScheduleError:
        return True
    return False


def prefix_of(stage: str) -> str:
    """A beginning for names of decisions that tells whose they are."""
    return re.sub(r"\W", "_", stage) + "_"
