"""Open decisions: the steps whose outcome a tuner may change."""

from __future__ import annotations

from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.errors import BadArgument, shown
from tensorlang.schedule.primitive import Identifier, Outputs, Primitive, is_identifier, named, primitive
from tensorlang.schedule.state import ScheduleState


@primitive("sample_choice")
@dataclass(frozen=True, slots=True)
class SampleChoice(Primitive):
    """Choose one of several whole numbers; later steps refer to the choice by name.

    Rewrite: none; `decision` is a field of the trace, which `Trace.with_decisions` replaces.
    Legal when: the decision is one of the candidates, and the name is new.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((100,), name="A")
        >>> B = te.compute((100,), lambda i: A[i] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> factor = s.sample_choice("factor", [4, 8, 16], decision=8)
        >>> s.trace.with_decisions({"factor": 16}).decisions
        {'factor': 16}
    """

    name: Identifier
    candidates: tuple[int, ...]
    decision: int = named()

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        if not is_identifier(self.name):
            why = f"a decision is named like a Python variable, got {shown(self.name)}; keywords, s and te are taken"
            raise BadArgument("", why)
        if self.name in state.decisions:
            raise BadArgument("", f"there is a decision {self.name} already")
        if not self.candidates:
            raise BadArgument("", f"decision {self.name} has no candidates")
        if self.decision not in self.candidates:
            raise BadArgument("", f"decision {self.name} = {self.decision} is not among {list(self.candidates)}")
        return replace(state, decisions={**state.decisions, self.name: self.decision}), (self.name,)
