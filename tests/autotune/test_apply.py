"""From a log to a schedule: verified again, or refused with the reason."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import topi
from tensorlang.autotune import (
    LogWriter,
    RecordSkipped,
    Task,
    TuningRecord,
    apply_best,
    apply_history_best,
    bench_best,
    create_task,
    read_log,
    tune,
)
from tensorlang.errors import RecordError
from tensorlang.ir.stmt import Kernel
from tensorlang.lowering import pipeline
from tensorlang.schedule import Trace, create_schedule

SIZES = (24, 40, 16)


@pytest.fixture(scope="module")
def task() -> Task:
    return create_task("matmul", SIZES, threads=1)


@pytest.fixture(scope="module")
def log(task: Task, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("apply") / "log"
    tune(task, trials=6, log=path)
    return path


def _best(log: Path) -> TuningRecord:
    return min((r for r in read_log(log).records if r.ok), key=lambda r: r.median)


def _log_with(tmp_path: Path, record: TuningRecord, **changes: Any) -> Path:
    path = tmp_path / "log"
    with LogWriter(path) as writer:
        writer.append(replace(record, **changes))
    return path


def test_the_best_schedule_computes_the_right_values(log: Path, task: Task) -> None:
    schedule = apply_best(log, task.tensors, threads=1)
    assert schedule.trace.key == _best(log).trace_key
    function = tensorlang.build(schedule, list(task.tensors), "llvm")
    a, b = (np.arange(np.prod(s), dtype=np.float32).reshape(s) % 7 for s in ((24, 16), (16, 40)))
    c = np.empty((24, 40), np.float32)
    function(a, b, c)
    assert np.array_equal(c, a @ b)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(tensorlang.__file__).parents[1])}


_OTHER_PROCESS = """
import sys
from tensorlang.autotune import apply_best, create_task
task = create_task("matmul", (24, 40, 16), threads=1)
print(apply_best(sys.argv[1], task).trace.to_python())
"""


def test_another_process_finds_the_same_schedule(log: Path) -> None:
    printed = subprocess.run(
        [sys.executable, "-c", _OTHER_PROCESS, str(log)], capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == Trace.from_json(_best(log).trace).to_python().strip()


def test_another_program_is_refused_with_what_there_is(log: Path) -> None:
    other = create_task("matmul", (24, 40, 17), threads=1)
    with pytest.raises(RecordError, match=r"no record of matmul\(24, 40, 17, float32\).*it has matmul\(24, 40, 16"):
        apply_best(log, other)


def test_another_number_of_threads_is_refused_with_what_there_is(log: Path) -> None:
    with pytest.raises(RecordError, match=r"with 1 thread, not for .* with 2 threads"):
        apply_best(log, create_task("matmul", SIZES, threads=2))


def test_failures_alone_are_no_schedule(log: Path, task: Task, tmp_path: Path) -> None:
    path = _log_with(tmp_path, _best(log), seconds=(), status="timeout")
    with pytest.raises(RecordError, match=r"1 record of .*, but none is ok"):
        apply_best(path, task)


def test_an_illegal_trace_is_refused_even_when_it_claims_to_be_fast(log: Path, task: Task, tmp_path: Path) -> None:
    best = _best(log)
    tampered = [{"step": "parallel", "stage": "C", "axis": "k"}]
    path = _log_with(tmp_path, best, trace=tampered, seconds=(1e-12,))
    with pytest.raises(RecordError, match="is refused: IllegalParallel: "):
        apply_best(path, task)


def test_a_trace_of_unknown_steps_is_refused(log: Path, task: Task, tmp_path: Path) -> None:
    path = _log_with(tmp_path, _best(log), trace=[{"step": "bend"}])
    with pytest.raises(RecordError, match="unknown schedule step 'bend'"):
        apply_best(path, task)


def test_a_replayed_best_is_timed_beside_numpy(log: Path, task: Task) -> None:
    bench = bench_best(log, task)
    assert bench.record.trace_key == _best(log).trace_key
    assert bench.record.seconds == bench.comparison.tensorlang
    assert bench.peak_gflops > 0


def test_the_next_best_is_applied_and_timed_where_the_best_is_refused(log: Path, task: Task, tmp_path: Path) -> None:
    best = _best(log)
    path = _log_with(tmp_path, best)
    _log_with(tmp_path, best, trace=[{"step": "bend"}], seconds=(1e-12,))
    with pytest.warns(RecordSkipped, match="apply_best skips .* of matmul.* is refused: unknown schedule step 'bend'"):
        assert apply_best(path, task).trace.key == best.trace_key
    with pytest.warns(RecordSkipped, match="bench_best skips"):
        assert bench_best(path, task).record.trace_key == best.trace_key


def test_a_record_that_cannot_be_lowered_gives_way_to_the_next_best(
    log: Path, task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORLANG_SCRATCH", "64")
    best, wide = _best(log), create_schedule([t.op for t in task.outputs])
    wide.cache_write("C", "local")
    path = _log_with(tmp_path, best, trace=[], seconds=(1.0,))
    _log_with(tmp_path, best, trace=wide.trace.to_json(), seconds=(1e-12,))
    with pytest.warns(RecordSkipped, match="apply_best skips .* is refused: TooComplex"):
        assert not apply_best(path, task).trace.steps
    with apply_history_best(path), pytest.warns(RecordSkipped, match=r"topi\.schedule skips .* is refused: TooComplex"):
        assert not topi.schedule(task.outputs, target=task.target).trace.steps


def test_what_was_applied_is_not_lowered_again(log: Path, task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    lowered: list[object] = []
    whole = pipeline._lower

    def counted(*args: Any) -> Kernel:
        lowered.append(args)
        return whole(*args)

    monkeypatch.setattr(pipeline, "_lower", counted)
    tensorlang.build(apply_best(log, task), list(task.tensors), task.target)
    assert len(lowered) == 1
    with apply_history_best(log):
        tensorlang.build(topi.schedule(task.outputs, target=task.target), list(task.tensors), task.target)
    assert len(lowered) == 2
