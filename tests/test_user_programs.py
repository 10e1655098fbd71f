"""Users' programs of the benchmark: right under topi.schedule, and timed beside what the tuner finds."""

from __future__ import annotations

import pytest

from benchmarks import users
from benchmarks.user_programs import PROGRAMS, Program, inputs
from tensorlang import te, topi


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=lambda p: p.name)
def test_what_users_write_means_what_they_mean(program: Program) -> None:
    tensors, reference = program.make(*program.small)
    given = inputs(tensors)
    wanted = reference(*given)
    for s in (te.create_schedule(tensors[-1].op), topi.schedule(tensors[-1], "llvm -num-cores=2", tuned=False)):
        users.kernel(s, tensors, given, wanted)


def test_both_kernels_are_timed() -> None:
    outcome = users.measure(PROGRAMS["max-plus"], seconds=0.1, threads=1, rounds=3, small=True)
    assert outcome.trials >= 1 and outcome.untuned > 0 and outcome.tuned > 0
    assert outcome.program == "max-plus 9×20×7" and outcome.forms.startswith("C: ")


def test_a_wrong_kernel_is_not_timed() -> None:
    tensors, reference = PROGRAMS["gemv"].make(5, 7)
    given = inputs(tensors)
    with pytest.raises(AssertionError, match="y is off by"):
        users.kernel(te.create_schedule(tensors[-1].op), tensors, given, reference(*given) + 1)
