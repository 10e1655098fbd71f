"""Steps of a schedule on a program of other names: the same schedule, and back again the same steps."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorlang import te
from tensorlang.errors import RecordError, ScheduleError
from tensorlang.schedule import Schedule, Trace
from tensorlang.schedule.primitive import REGISTRY
from tensorlang.schedule.transfer import NAMED, ROLES, Transfer
from tensorlang.te.program import Program
from tensorlang.testing.strategies import programs
from tensorlang.testing.traces import schedules
from tests.programs import matmul
from tests.renaming import renamed, schedule_of
from tests.schedule.primitive_uses import USES

NAMELESS = {"fact", "thread", "threads", "pragma", "value", "scope", "tail", "intrinsic", "key", "name", "at", "data"}
"""Fields that are words, texts over sizes, or names of what is no part of a program."""


def transferred(trace: Trace, recorded: Program, ours: Schedule) -> Trace:
    """The steps of a schedule of one program on another, where operations stand in the same order."""
    names = [[op.name for op in program.ops] for program in (recorded, ours.original)]
    Transfer(recorded, ours, dict(zip(*names, strict=True))).run_all(trace)
    return ours.trace


def check(s: Schedule, stage: str, axis: str) -> None:
    """A schedule goes to a program of other names and comes back the same."""
    other = schedule_of(renamed(s.original, stage.format, axis.format))
    there = transferred(s.trace, s.original, other)
    assert len(there.steps) == len(s.trace.steps)
    assert transferred(there, other.original, schedule_of(s.original)) == s.trace
    other.require_legal("the steps under other names")


@pytest.mark.sampled(20)
@pytest.mark.parametrize("key", sorted(USES))
def test_every_step_is_carried_over(key: str) -> None:
    case = USES[key].program()
    exec(USES[key].steps, {"s": case.s, "te": te})
    check(case.s, "{}_o", "{}_i")


@settings(max_examples=40)
@given(data=st.data())
def test_random_schedules_are_carried_over(data: st.DataObject) -> None:
    case = data.draw(programs())
    check(data.draw(schedules(case.outputs)), "i_{}", "{}_o")


def test_a_made_name_that_is_taken_is_another_one_here() -> None:
    """Axis `r_o` is there already, so that the halves of `r` are called otherwise."""
    s, _ = matmul()
    s["C"].split("k", factor=2)
    s["C"].reorder("k_o", "i", "j", "k_i")
    other = schedule_of(renamed(s.original, str.lower, {"i": "r_o", "j": "r_i", "k": "r"}.__getitem__))
    steps = transferred(s.trace, s.original, other)
    assert steps.to_python() == "s['c'].split('r', factor=2)\ns['c'].reorder('r_o_1', 'r_o', 'r_i', 'r_i_1')\n"


def test_what_is_refused_is_refused_by_our_names() -> None:
    s, _ = matmul()
    steps = Trace.from_json([{"step": "reorder", "stage": "C", "axes": ["j", "q"]}])
    other = schedule_of(renamed(s.original, str.lower, str.upper))
    with pytest.raises(ScheduleError, match=r"s\['c'\].reorder\('J', 'q'\).*\n?.*no axis 'q' in c; there are I, J, K"):
        transferred(steps, s.original, other)


def test_other_loops_are_no_place_for_steps() -> None:
    s, t = matmul().s, schedule_of(matmul().s.original)
    t["C"].split("i", factor=2)
    with pytest.raises(RecordError, match="C has the loops i, j, k, C in the record, C i, j, k, i_o, i_i, C"):
        Transfer(s.original, t, {name: name for name in "ABC"})


def test_it_is_known_of_every_field_whether_it_names_something() -> None:
    named = {f.name for cls in REGISTRY.values() for f in fields(cls) if f.type in (*NAMED, "int | str | None")}
    assert named <= ROLES.keys() | NAMELESS
    assert not ROLES.keys() & NAMELESS
