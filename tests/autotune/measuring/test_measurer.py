"""Measuring with real workers: each way to fail is its own status, and none ends the batch."""

from __future__ import annotations

import copy
import pickle
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorlang import te
from tensorlang.autotune.measuring.arrays import Arrays
from tensorlang.autotune.measuring.jobs import BuildJob as Job
from tensorlang.autotune.measuring.jobs import RunJob, build_candidate, build_job, run_candidate
from tensorlang.autotune.measuring.measurer import Limits, Measurement, Measurer, peak_of
from tensorlang.autotune.measuring.seeded import require_room, seeded_inputs
from tensorlang.autotune.records.record import Status
from tensorlang.autotune.space import sketches_of
from tensorlang.autotune.task import Task, create_task, task_of
from tensorlang.errors import DefinitionError, ScheduleError, TargetError
from tensorlang.schedule import create_schedule
from tensorlang.target import Rates
from tensorlang.target.detect import host_cpu
from tensorlang.te import tensor_intrin
from tests.forked_workers import SMALL_CACHES
from tests.intrinsics import tile_matmul

OPERATORS = str(Path(__file__).parents[1] / "operators.py")


@pytest.fixture(scope="module")
def task() -> Task:
    return create_task("matmul", (24, 40, 16), threads=1)


@pytest.fixture(scope="module")
def measurer(task: Task) -> Iterator[Measurer]:
    with Measurer(task) as made:
        yield made


def _traces(task: Task, count: int = 1) -> list[Any]:
    sketch = next(s for s in sketches_of(task) if s.name.startswith("reuse"))
    rows = sketch.sample(np.random.default_rng(0), 64)[:count]
    return [sketch.trace.with_decisions(sketch.decisions(row)).to_json() for row in rows]


def _measure(measurer: Measurer, traces: list[Any], best: float | None = None) -> list[Measurement]:
    found = dict(measurer.measure(traces, lambda: best))
    return [found[n] for n in range(len(traces))]


def test_good_candidates_are_timed_and_checked(task: Task, measurer: Measurer) -> None:
    for result in _measure(measurer, _traces(task, 3)):
        assert (result.status, result.error) in ((Status.OK, ""), (Status.NOISY, result.error))
        assert result.checked
        assert all(0 < s < 1 for s in result.seconds)


def test_candidates_may_be_proposed_from_the_results_of_others(task: Task, measurer: Measurer) -> None:
    first, *rest = _traces(task, 4)
    found: dict[int, Measurement] = {}
    asked: list[int] = []

    def proposed() -> Iterator[Any]:
        yield first
        while not found:
            yield None
        asked.append(len(found))
        yield from rest

    for position, measurement in measurer.measure(proposed(), lambda: None):
        found[position] = measurement
    assert (sorted(found), asked) == ([0, 1, 2, 3], [1])
    assert all(m.checked for m in found.values())


def test_bad_candidates_do_not_disturb_good_ones(task: Task, measurer: Measurer) -> None:
    good = _traces(task)[0]
    illegal = [*copy.deepcopy(good), {"step": "parallel", "stage": "C.local", "axis": "k_o"}]
    nonsense = [{"step": "frobnicate"}]
    results = _measure(measurer, [illegal, good, nonsense, good])
    assert [r.status for r in results[::2]] == [Status.ILLEGAL, Status.BUILD_ERROR]
    assert "at the same time" in results[0].error
    assert "frobnicate" in results[2].error
    assert all(r.status in (Status.OK, Status.NOISY) for r in results[1::2])


def test_a_build_over_its_limit_is_a_timeout(task: Task) -> None:
    with Measurer(task) as measurer:
        measurer.limits = Limits(build=1e-3)
        assert [r.status for r in _measure(measurer, _traces(task, 2))] == [Status.TIMEOUT] * 2


def test_a_wrong_answer_is_not_timed(task: Task, tmp_path: Path) -> None:
    tensors = pickle.dumps(task.tensors)
    kernel = build_candidate(Job(tensors, _traces(task)[0], task.target))
    inputs = seeded_inputs(task, 0)
    right = (inputs[0] @ inputs[1]).astype(np.float32)
    wrong = right.copy()
    wrong[3, 5] += 1
    path = tmp_path / "arrays"
    for number, outputs in enumerate((right, wrong)):
        path = tmp_path / f"arrays{number}"
        path.write_bytes(pickle.dumps(Arrays(inputs, (outputs,), 1e-4, 1e-5)))
        result = run_candidate(RunJob(kernel, task.target, str(path), None))
        if number == 0:
            assert result.status in (Status.OK, Status.NOISY)
        else:
            assert (result.status, result.timing.seconds) == (Status.WRONG_ANSWER, ())
            assert "at [3, 5]" in result.error
            assert "1 of 960 elements" in result.error


def test_the_winner_is_compared_with_numpy(task: Task, measurer: Measurer) -> None:
    comparison = measurer.compare(_traces(task)[0])
    assert comparison.competitor.startswith("NumPy")
    assert min(*comparison.tensorlang, *comparison.numpy) > 0
    assert comparison.speedup > 0


def test_caches_can_be_flushed_and_the_record_says_so(task: Task) -> None:
    small = replace(task, target=replace(task.target, caches=SMALL_CACHES))
    with Measurer(small, limits=Limits(flush=True, builders=1)) as measurer:
        (found,) = _measure(measurer, _traces(task))
    assert found.status in (Status.OK, Status.NOISY)
    assert found.conditions["flush"] is True


def test_a_first_run_far_behind_the_best_is_measurement_enough(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tensorlang.autotune.measuring.jobs.LONG_ENOUGH", 0.0)
    kernel = build_candidate(Job(pickle.dumps(task.tensors), _traces(task)[0], task.target))
    inputs = seeded_inputs(task, 0)
    path = tmp_path / "arrays"
    path.write_bytes(pickle.dumps(Arrays(inputs, ((inputs[0] @ inputs[1]).astype(np.float32),), 1e-4, 1e-5)))
    result = run_candidate(RunJob(kernel, task.target, str(path), 1e-12))
    assert (result.status, len(result.timing.seconds)) == (Status.OK, 1)


def test_programs_too_large_for_numpy_are_checked_against_the_unscheduled_kernel(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tensorlang.autotune.measuring.seeded.LARGEST_EVALUATION", 0)
    own = create_task(f"{OPERATORS}:max_of_min", (9, 17, 5), threads=1)
    with Measurer(own) as measurer:
        arrays: Arrays = pickle.loads(Path(measurer.arrays_path).read_bytes())
        expected = np.minimum(arrays.inputs[0][:, None, :], arrays.inputs[1].T[None]).max(-1)
        assert np.array_equal(arrays.outputs[0], expected)
        assert _measure(measurer, _traces(own))[0].checked


def test_programs_that_do_not_build_are_their_writers_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorlang.autotune.measuring.seeded.LARGEST_EVALUATION", 0)
    a = te.placeholder((8, 4), name="a")
    outside = task_of([a, te.compute((9,), lambda i: a[i, 0] + 1.0, name="outside")])
    wanted = "program does not build as it is declared: outside reads a"
    with pytest.raises(DefinitionError, match=wanted), Measurer(outside):
        pass


def test_inputs_are_seeded_and_indices_stay_inside(task: Task) -> None:
    gather = create_task(f"{OPERATORS}:rows_by_index", (4, 8, 100))
    _, index = seeded_inputs(gather, 1)
    assert set(np.unique(index)) == {0, 1, 2, 3}
    assert index.dtype == np.int32
    first, again, other = (seeded_inputs(task, seed)[0] for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    integers = seeded_inputs(create_task("matmul", (8, 8, 8, "uint8")), 0)[0]
    assert integers.dtype == np.uint8


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8"])
def test_inputs_are_made_in_their_dtype(dtype: str) -> None:
    task = create_task("matmul", (8, 2048, 512, dtype))
    wanted = sum(a.nbytes for a in seeded_inputs(task, 0))
    tracemalloc.start()
    try:
        seeded_inputs(task, 0)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert wanted < most < wanted + 5e6  # numbers of 64 bits are drawn a piece at a time


def test_arrays_count_against_the_limit_of_memory() -> None:
    task = create_task("matmul", (100, 200, 300), threads=1)
    arrays = 4 * (100 * 300 + 200 * 300 + 3 * 100 * 200)
    require_room(task, arrays)
    require_room(task, 0)
    with pytest.raises(TargetError, match=r"holds arrays of 0.0 GB, and may take 0.0 GB; tune it with smaller sizes"):
        require_room(task, arrays - 1)
    huge = create_task("matmul", (1 << 20, 1 << 20, 1 << 20), threads=1)
    with pytest.raises(TargetError, match=r"matmul.* holds arrays of 21990\.2 GB"), Measurer(huge):
        pass


def test_rates_are_those_of_this_machine_and_of_no_other_cpu(task: Task, measurer: Measurer) -> None:
    rates = measurer.rates()
    assert rates is not None
    assert rates.threads == 1
    assert measurer.peak_gflops() >= 0.99 * rates.gflops
    assert measurer.rates() is rates  # equal estimates, and so equal proposals, in one process
    other = next(name for name in ("x86-64", "haswell") if name != host_cpu().name)
    foreign = Measurer(replace(task, target=replace(task.target, cpu=other)))
    assert foreign.rates() is None


VALUES = {"fma float32x16": 4.0, "fma float64x8": 4.0, "dot int8x64": 4.0, "dot bfloat16x32": 4.0}


@pytest.mark.parametrize(
    ("dtype", "sums", "values", "wanted"),
    [
        ("float32", "float32", VALUES, 128.0),
        ("float64", "float64", VALUES, 64.0),
        ("bfloat16", "float32", VALUES, 256.0),
        ("float16", "float32", VALUES, 128.0),
        ("int8", "int32", VALUES, 512.0),
        ("int32", "int32", VALUES, 128.0),
        ("int64", "int64", VALUES, 64.0),
        ("int16", "int32", VALUES, 0.0),
        ("uint8", "int32", {"fma float32x16": 4.0}, 0.0),
    ],
)
def test_the_peak_is_that_of_the_instructions_that_arrays_allow(
    dtype: str, sums: str, values: dict[str, float], wanted: float
) -> None:
    alone = Rates(1, values)
    assert peak_of([dtype, dtype, sums], alone, alone) == wanted
    slow, fast = (Rates(2, {name: times * rate for name, rate in values.items()}) for times in (1.5, 2.5))
    assert peak_of([dtype, dtype, sums], alone, slow) == 2 * wanted  # one of the threads was held up
    assert peak_of([dtype, dtype, sums], alone, fast) == 2.5 * wanted


def test_an_intrinsic_of_the_user_comes_with_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tile_matmul(4, 8, 2)
    task = create_task("matmul", (24, 40, 16), threads=1)
    s = create_schedule([t.op for t in task.tensors[-1:]])
    tile = s["C"].tile("i", "j", 4, 8)
    (step, inner) = s["C"].split("k", factor=2)
    s["C"].reorder(*tile[:2], step, *tile[2:], inner)
    s["C"].tensorize(tile[2], mine)
    job = build_job(pickle.dumps(task.tensors), s.trace.to_json(), task.target)
    monkeypatch.setattr(tensor_intrin, "_DECLARED", {})
    with pytest.raises(ScheduleError, match=f"no intrinsic {mine.name}"):
        build_candidate(replace(job, intrinsics=b""))
    assert build_candidate(job) and te.intrin(mine.name).key == mine.key
