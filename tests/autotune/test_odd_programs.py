"""Search spaces of programs that nobody thought of: every candidate is legal, or the refusal says why there is none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tensorlang import te
from tensorlang.autotune.search.sketch import require_candidates
from tensorlang.autotune.space import sketches_of
from tensorlang.autotune.task import task_of
from tensorlang.errors import ScheduleError
from tensorlang.schedule import Trace, create_schedule
from tensorlang.testing.ordered_programs import OrderedCase, ordered_programs
from tensorlang.testing.strategies import ProgramCase, programs

FEW = settings(
    max_examples=6, phases=[Phase.generate], deadline=None, suppress_health_check=list(HealthCheck), database=None
)


def _check_space(tensors: Sequence[te.Tensor]) -> None:
    """There are sketches, and a candidate of the first and the last one is proven legal; or nothing is computed."""
    task, rng = task_of(tensors, "odd", threads=2), np.random.default_rng(0)
    if not task.workload.flops:
        with pytest.raises(ScheduleError, match="no iterations"):
            sketches_of(task)
        return
    sketches = require_candidates(sketches_of(task), rng)
    for sketch in (sketches[0], sketches[-1]):
        decisions = sketch.decisions(sketch.sample(rng, 64)[0])
        trace = Trace.from_json(sketch.trace.with_decisions(decisions).to_json())
        trace.apply(create_schedule([t.op for t in task.outputs]), check="final")


@FEW
@given(programs(max_stages=3, max_extent=17, dtypes_from=("float32", "int8", "float64")))
def test_random_programs_have_spaces(case: ProgramCase) -> None:
    _check_space(case.tensors)


@FEW
@given(ordered_programs(symbolic=False, data=True))
def test_random_ordered_programs_have_spaces(case: OrderedCase) -> None:
    read = [t for t in case.placeholders if t.name in case.program.by_name]
    _check_space([*read, *case.outputs])


def _product(m: int, n: int, k: int) -> list[te.Tensor]:
    A, B = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="r")
    return [A, B, te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")]


def _empty_and_full() -> list[te.Tensor]:
    A = te.placeholder((0, 4), name="A")
    B = te.placeholder((5,), name="B")
    added = te.compute((0, 4), lambda i, j: A[i, j] + 1.0, name="C")
    return [A, B, added, te.compute((5,), lambda i: B[i] * 2.0, name="D")]


@te.hybrid.script
def _smoothed(steps: Any, A: Any) -> Any:
    for t in range(steps):  # noqa: B007
        for i in range(1, A.shape[0] - 1):
            A[i] = (A[i - 1] + A[i] + A[i + 1]) * 0.25
    return A


def _never() -> list[te.Tensor]:
    A = te.placeholder((6,), name="A")
    return [A, _smoothed(0, A)]


PROGRAMS: dict[str, tuple[Callable[[], Sequence[te.Tensor]], str]] = {
    "no rows": (lambda: _product(0, 9, 9), "C"),
    "no columns": (lambda: _product(9, 0, 9), "C"),
    "no terms": (lambda: _product(9, 9, 0), "C"),
    "one of two": (_empty_and_full, "C"),
    "ordered": (_never, "empty"),
}


@pytest.mark.parametrize(("program", "what"), PROGRAMS.values(), ids=list(PROGRAMS))
def test_a_program_without_iterations_is_refused(program: Callable[[], Sequence[te.Tensor]], what: str) -> None:
    with pytest.raises(ScheduleError, match=rf"{what}(\(\))? has no iterations: there is nothing to tune"):
        sketches_of(task_of(program(), "empty", threads=2))


@te.hybrid.script
def _first_two_swapped(A: Any) -> Any:
    B = te.output_tensor((2,), "float32")
    B[0] = A[1]
    B[1] = A[0]
    return B


@pytest.mark.parametrize("threads", [1, 2])
def test_statements_without_a_loop_have_a_schedule(threads: int) -> None:
    A = te.placeholder((2,), name="A")
    sketches = sketches_of(task_of([A, _first_two_swapped(A)], "swapped", threads=threads))
    assert "declared" in [sketch.name for sketch in sketches]
