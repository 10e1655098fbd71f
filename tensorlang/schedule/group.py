"""Groups of stages that move together: create_group."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from tensorlang.errors import BadArgument
from tensorlang.schedule.primitive import Primitive
from tensorlang.schedule.primitives import ComputeAt, ComputeRoot
from tensorlang.schedule.stage import Scheduled, Stage
from tensorlang.schedule.state import ScheduleState
from tensorlang.te.operation import PlaceholderOp
from tensorlang.te.program import Program, read_buffers


class Group:
    """The stages between some inputs and some outputs. Moving the group is recorded as steps of its stages."""

    def __init__(self, schedule: Scheduled, names: Sequence[str]) -> None:
        self.schedule = schedule
        self.names = tuple(names)

    @property
    def stages(self) -> list[Stage]:
        """The member stages in program order."""
        return [self.schedule[name] for name in self.names]

    def compute_at(self, parent: Any, scope: Any) -> None:
        """Compute all members inside the loop `scope` of `parent`: each the part that is needed there, or none moves.

        A member that is computed inside another one stays there.
        """
        stage = self.schedule[parent]
        host, axis = stage.name, str(scope if stage.inside is None else stage.inside.loop(scope))

        def steps(state: ScheduleState) -> list[Primitive]:
            if host in self.names:
                raise BadArgument("", f"{host} is a member of the group: it cannot be computed inside itself")
            # Consumers first: a stage may only move to where all of its readers are.
            return [ComputeAt(name, host, axis) for name in self._free(state)[::-1]]

        self.schedule.compose(f"s.create_group({', '.join(self.names)}).compute_at(s[{host!r}], {axis!r})", steps)

    def compute_root(self) -> None:
        """Compute all members as a whole, before their consumers."""

        def steps(state: ScheduleState) -> list[Primitive]:
            return [ComputeRoot(name) for name in self._free(state)]

        self.schedule.compose(f"s.create_group({', '.join(self.names)}).compute_root()", steps)

    def _free(self, state: ScheduleState) -> list[str]:
        """The members that are not computed inside another one, in program order."""
        places = {name: state.stage(name).attach for name in self.names}
        return [name for name, attach in places.items() if attach is None or attach.stage not in self.names]

    def __repr__(self) -> str:
        return f"Group({', '.join(self.names)})"


def members_between(
    program: Program, outputs: Sequence[str], inputs: Collection[str], include_inputs: bool
) -> tuple[str, ...]:
    """The operations on the way from `inputs` to `outputs`, in program order; placeholders are never among them.

    Raises BadArgument when an output is an input too, or the outputs need none of the inputs.
    """
    found: set[str] = set()
    met: set[str] = set()
    pending = list(outputs)
    while pending:
        name = pending.pop()
        if name in inputs:
            met.add(name)
            continue
        if name not in found and not isinstance(program[name], PlaceholderOp):
            found.add(name)
            pending += [program.producer[b] for b in read_buffers(program[name])]
    lost = sorted(set(inputs) - met)
    if lost:
        raise BadArgument("", f"{lost[0]} bounds no way to {', '.join(outputs)}: nothing of the group reads it")
    if include_inputs:
        found |= {name for name in inputs if not isinstance(program[name], PlaceholderOp)}
    if not found:
        raise BadArgument("", f"no stage lies between {', '.join(sorted(inputs))} and {', '.join(outputs)}")
    return tuple(op.name for op in program.ops if op.name in found)
