"""Many steps proven legal at once: the same schedule, no proof in between, nothing kept after a refusal."""

from __future__ import annotations

import pytest

from tensorlang import te
from tensorlang.errors import IllegalParallel
from tensorlang.schedule import Schedule


def running_sum() -> Schedule:
    a = te.placeholder((8, 8), name="a")
    i, j = te.reduce_axis((0, 8), "i"), te.reduce_axis((0, 8), "j")
    rows = te.compute((8,), lambda x: te.sum(a[x, i], axis=i), name="rows")
    out = te.compute((8,), lambda x: te.sum(a[x, j] * rows[x], axis=j), name="out")
    made: Schedule = te.create_schedule(out.op)
    return made


def test_steps_are_those_of_one_by_one() -> None:
    apart, together = running_sum(), running_sum()
    with together.proven_together("both splits"):
        together["out"].split("x", factor=4)
        with together.proven_together("the second"):
            together["rows"].split("x", factor=2)
    apart["out"].split("x", factor=4)
    apart["rows"].split("x", factor=2)
    assert together.trace == apart.trace


def test_a_refusal_undoes_them_all_and_names_what_was_asked() -> None:
    s = running_sum()
    before = s.state
    with pytest.raises(IllegalParallel) as caught, s.proven_together("my rule"):
        s["out"].split("x", factor=4)
        s["out"].vectorize("j")
    assert caught.value.asked == "my rule"
    assert s.state is before
    assert not s.trace.steps


def test_steps_after_it_are_proven_one_by_one() -> None:
    s = running_sum()
    with s.proven_together("nothing"):
        pass
    with pytest.raises(IllegalParallel):
        s["out"].parallel("j")
