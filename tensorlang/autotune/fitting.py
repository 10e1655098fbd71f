"""How the steps of a record fit a program: as written, under other names, or around the main group that it is of.

A record applies as an anchor where all else that the program computes is made element by element. What follows the main
group is computed in its tile; where that is refused, in loops of its own, like what precedes it (as the rules of the
library have it: inlined, unless that computes it again and again).
"""

from __future__ import annotations

from collections.abc import Mapping

from tensorlang import dtypes
from tensorlang.autotune.records.lookup import mains_of
from tensorlang.autotune.records.record import TuningRecord
from tensorlang.dataclass import dataclass
from tensorlang.errors import RecordError, ScheduleError
from tensorlang.ir.stmt import LoopKind
from tensorlang.schedule import Schedule, Trace
from tensorlang.schedule.primitives import CacheWrite
from tensorlang.schedule.recorded import How, as_written
from tensorlang.schedule.state import initial_stage
from tensorlang.schedule.transfer import Transfer
from tensorlang.schedules.default import elementwise_after, is_elementwise, schedule_others
from tensorlang.target.spec import Target
from tensorlang.te.axis import AxisKind
from tensorlang.te.forms import Form, form_of, matched
from tensorlang.te.operation import ComputeOp, PlaceholderOp
from tensorlang.te.program import Program
from tensorlang.te.renamed import under_names_of

_ASKED = "the steps of the record"


def fitting(record: TuningRecord, program: Program, target: Target) -> How | None:
    """How the steps of a record apply to a program; None when they do not."""
    text = record.workload.program
    if text in ("", program.text):
        return as_written if record.workload.key in program.keys else None
    theirs, ours = form_of(text), form_of(program.text)
    if theirs.text == ours.text:
        return Renamed(theirs, {a.name: b.name for a, b in zip(theirs.ops, ours.ops, strict=True)})
    ends = (op.name for op in ours.ops if not op.is_input)
    found = (pairs for end in ends if (pairs := matched(theirs, ours, end)) and _is_main(theirs, pairs, program))
    pairs = next(found, None)
    return None if pairs is None else Anchored(theirs, pairs, target)


def mains_with_others(program: Program) -> set[str]:
    """The main operations of a program (see mains_of) that has others, too: records may be of groups around them."""
    others = [op for op in program.ops if isinstance(op, ComputeOp) and is_elementwise(op)]
    return set(mains_of(program.text)) if others else set()


def _is_main(record: Form, pairs: Mapping[str, str], program: Program) -> bool:
    """Whether a part of a program is all of it that is not made element by element."""
    own = {ours for theirs, ours in pairs.items() if not record.by_name[theirs].is_input}
    computed = [op for op in program.ops if not isinstance(op, PlaceholderOp)]
    plain = {op.name for op in computed if isinstance(op, ComputeOp) and is_elementwise(op)}
    return {op.name for op in computed} - plain <= own and not own <= plain


@dataclass(frozen=True, slots=True)
class Renamed:
    """The steps of a record on the same program under other names: `pairs` of operations, theirs and ours."""

    record: Form
    pairs: Mapping[str, str]

    def __call__(self, fresh: Schedule, trace: Trace) -> Schedule:
        with fresh.proven_together(_ASKED):
            _transfer(self.record, self.pairs, fresh).run_all(trace)
        return fresh


@dataclass(frozen=True, slots=True)
class Anchored:
    """The steps of a record on a part of a program: `pairs` of operations, theirs and ours."""

    record: Form
    pairs: Mapping[str, str]
    target: Target

    @property
    def main(self) -> str:
        """What the record computes, as it is called here."""
        return self.pairs[self.record.outputs[0]]

    def __call__(self, fresh: Schedule, trace: Trace) -> Schedule:
        chain = elementwise_after(fresh.original, self.main, set())
        if len(chain) > 1:
            try:
                return self._in_tile(fresh.again(), trace, chain)
            except (RecordError, ScheduleError):
                pass  # in loops of its own
        with fresh.proven_together(_ASKED):
            _transfer(self.record, self.pairs, fresh).run_all(trace)
            self._others(fresh, [])
        return fresh

    def _in_tile(self, s: Schedule, trace: Trace, chain: list[str]) -> Schedule:
        """With the last of what follows the main stage in the place of its output, or in its tile."""
        output, (main, *between, last) = self.record.outputs[0], chain
        with s.proven_together(_ASKED):
            for name in between:
                s[name].compute_inline()
            transfer, hosted = _transfer(self.record, self.pairs, s), False
            for step in trace.steps:
                if isinstance(step, CacheWrite) and step.stage == output and _is_fresh(transfer, output):
                    transfer.only_recorded(step)
                    if step.scope != "global":
                        s[main].set_scope(step.scope)
                    transfer.pair([main], {output: last})
                    hosted = True
                else:
                    transfer.run(step)
            if not hosted:
                self._follow(s, main, last)
            self._others(s, chain)
        return s

    def _follow(self, s: Schedule, main: str, last: str) -> None:
        """Compute a stage in the innermost loop of the main one that holds whole elements of it."""
        state, around = s.state.stages[main], ""
        kinds = s.state.axis_kinds(main)
        for axis in state.leaves:
            if kinds[axis] is AxisKind.REDUCE or state.kind(axis) is LoopKind.VECTORIZED:
                break
            around = axis
        if not around or self.target.can.device:
            raise RecordError(f"no loop of {main} holds whole elements of it")
        s[last].reverse_compute_at(s[main], around)
        op = s.program[last]
        if isinstance(op, ComputeOp):
            lanes = self.target.lanes(dtypes.info(op.dtype).bits)
            s[last].vectorize(s[last].split(op.axes[-1].name, factor=lanes)[1])

    def _others(self, s: Schedule, chain: list[str]) -> None:
        """Inline what else there is, or give it loops."""
        made = s.program.by_name.keys() - s.original.by_name.keys()
        own = {ours for theirs, ours in self.pairs.items() if not self.record.by_name[theirs].is_input}
        schedule_others(s, made | own | {*chain}, self.target, s.program)


def _transfer(record: Form, pairs: Mapping[str, str], ours: Schedule) -> Transfer:
    return Transfer(under_names_of(record, ours.original, pairs), ours, pairs)


def _is_fresh(transfer: Transfer, stage: str) -> bool:
    """Whether no step has changed the loops of a stage."""
    state = transfer.state
    return state.stages[stage] == initial_stage(state.program[stage]) and not state.attached_to(stage)
