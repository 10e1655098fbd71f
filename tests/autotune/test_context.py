"""Tuned records in use: what templates, builds and topi.schedule take, and what they say when there is nothing."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tensorlang
from tensorlang import autotune, config, te, topi
from tensorlang.autotune import (
    HistoryMiss,
    LogWriter,
    RecordSkipped,
    Status,
    TemplateTask,
    TuningRecord,
    apply_history_best,
)
from tensorlang.autotune.records.record import now
from tensorlang.autotune.task import Task, task_of
from tensorlang.autotune.templates.task import create
from tensorlang.errors import DefinitionError, RecordError
from tensorlang.schedule import Schedule, Trace
from tensorlang.schedule.history import build_in_use
from tensorlang.target import parse

from .templates.programs import matmul

TARGET = parse("llvm -num-cores=1")
BEST = 1234


@pytest.fixture(scope="module")
def task() -> TemplateTask:
    return create(matmul, args=(16, 24, 12), target=TARGET)


def record_of(task: Task, trace: Trace, seconds: float, sketch: str = "", **decisions: int) -> TuningRecord:
    return TuningRecord(
        task.workload, task.target.to_json(), task.threads, sketch, trace.to_json(), trace.key, decisions, Status.OK,
        (seconds,), time=now(),
    )  # fmt: skip


@pytest.fixture(scope="module")
def log(task: TemplateTask, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two records of the task; the second is the faster one."""
    path = tmp_path_factory.mktemp("context") / "log"
    with LogWriter(path) as writer:
        for index, seconds in ((0, 2e-3), (BEST, 1e-3)):
            trace = task.trace(task.config_space.get(index))
            writer.append(record_of(task.task, trace, seconds, task.sketch, **task.config_space.digits(index)))
    return path


@contextmanager
def silent() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_a_template_gives_its_best_schedule(log: Path, task: TemplateTask) -> None:
    best = task.trace(task.config_space.get(BEST)).key
    with silent(), apply_history_best(log), TARGET:
        s, args = matmul(16, 24, 12)
    assert s.trace.key == best
    assert matmul(16, 24, 12)[0].trace.key != best
    f = tensorlang.build(s, args, TARGET)
    a, b, c = np.ones((16, 12), np.float32), np.ones((12, 24), np.float32), np.empty((16, 24), np.float32)
    f(a, b, c)
    np.testing.assert_array_equal(c, 12)


def test_records_serve_without_a_log(log: Path, task: TemplateTask) -> None:
    records = autotune.read_log(log).records
    with silent(), apply_history_best(records) as context, TARGET:
        assert matmul(16, 24, 12)[0].trace.key == records[1].trace_key
        assert context.query(task) == records[1]
    with TARGET, apply_history_best(records), pytest.warns(HistoryMiss, match=r"the list given has no record of tests"):
        matmul(16, 24, 13)


def test_a_miss_warns_once_and_names_the_nearest_record(log: Path) -> None:
    with apply_history_best(log), TARGET:
        with pytest.warns(HistoryMiss, match=r"no tuned record, .*tests/matmul\(16, 24, 12\)") as caught:
            s, _ = matmul(16, 24, 13)
            matmul(16, 24, 13)
        assert len(caught) == 1
        assert "factor=1" in str(s)
    with (
        apply_history_best(log),
        pytest.warns(HistoryMiss, match=r"has tests/matmul\(16, 24, 12\) for llvm .*1 thread"),
    ):
        matmul_for_two = parse("llvm -num-cores=2")
        with matmul_for_two:
            matmul(16, 24, 12)


def test_a_miss_may_be_an_error_or_silent(log: Path) -> None:
    with (
        TARGET,
        apply_history_best(log, miss="error"),
        pytest.raises(RecordError, match="has no record of tests/matmul"),
    ):
        matmul(16, 24, 13)
    with silent(), TARGET, apply_history_best(log, miss="ignore"):
        assert "factor=1" in str(matmul(16, 24, 13)[0])
    with pytest.raises(DefinitionError, match="miss is 'warn', 'error' or 'ignore', got 'raise'"):
        apply_history_best(log, miss="raise")  # type: ignore[arg-type]


def test_no_log_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no such log"):
        apply_history_best(tmp_path / "none")


def test_a_record_of_another_version_of_the_template_is_replayed(
    log: Path, task: TemplateTask, capsys: pytest.CaptureFixture[str]
) -> None:
    old = [replace(r, sketch="tests/matmul 00000000") for r in autotune.read_log(log).records]
    with config.override(log="tuner"), apply_history_best(old), TARGET:
        s, args = matmul(16, 24, 12)
    assert s.trace.key == old[1].trace_key
    assert [t.name for t in args] == ["A", "B", "C"]
    said = capsys.readouterr().err
    assert "tensorlang tuner: template: tests/matmul(16, 24, 12) takes the record of" in said
    assert "has no such configuration (any more); the steps of the record are replayed" in said


def test_builds_and_topi_use_records_of_programs_without_a_template(tmp_path: Path) -> None:
    A = te.placeholder((8, 32), name="A")
    B = te.compute((8, 32), lambda i, j: A[i, j] * 2.0, name="B")
    tuned = te.create_schedule(B.op)
    tuned[B].vectorize(tuned[B].split("j", factor=8)[1])
    record = record_of(task_of([A, B], "double", target=TARGET), tuned.trace, 1e-3)
    plain = te.create_schedule(B.op)
    with silent(), apply_history_best([record]):
        f = tensorlang.build(plain, [A, B], TARGET)
        assert topi.schedule(B, TARGET).trace.key == tuned.trace.key
        other = te.create_schedule(B.op)
        other[B].reorder("j", "i")
        assert build_in_use(other, TARGET, lambda s: s) is other  # who has a schedule keeps it
    assert "vectorized j_i" in f.get_source("loops") or "vectorize" in f.get_source("loops")
    assert not plain.trace.steps
    assert topi.schedule(B, TARGET).trace.key != tuned.trace.key
    x, y = np.arange(256, dtype=np.float32).reshape(8, 32), np.empty((8, 32), np.float32)
    f(x, y)
    np.testing.assert_array_equal(y, 2 * x)


def test_an_illegal_record_is_not_used_silently() -> None:
    A = te.placeholder((8, 32), name="A")
    k = te.reduce_axis((0, 32), name="k")
    B = te.compute((8,), lambda i: te.sum(A[i, k], axis=k), name="B")
    task = task_of([A, B], "sums", target=TARGET)
    steps = [{"step": "vectorize", "stage": "B", "axis": "k"}]
    record = record_of(task, Trace.from_json(steps), 1e-3)
    with apply_history_best([record]), pytest.raises(RecordError, match=r"(?s)the best of B, is refused: .*vectorize"):
        tensorlang.build(te.create_schedule(B.op), [A, B], TARGET)


def test_a_template_takes_the_next_best_where_the_best_is_refused(log: Path, task: TemplateTask) -> None:
    slow, fast = autotune.read_log(log).records
    steps = [{"step": "vectorize", "stage": "C", "axis": "k"}]
    refused = replace(fast, trace=steps, sketch="", seconds=(1e-9,), time="early")
    with TARGET, apply_history_best([refused, slow, fast]):
        with pytest.warns(
            RecordSkipped, match=r"template skips the record of early: .* of tests/matmul.* is refused: "
        ):
            s, _ = matmul(16, 24, 12)
        assert s.trace.key == fast.trace_key
    with (
        TARGET,
        apply_history_best([refused]),
        pytest.raises(RecordError, match=r"the best of tests/matmul.*is refused"),
    ):
        matmul(16, 24, 12)
    with TARGET, apply_history_best([slow]), apply_history_best([refused]), pytest.warns(RecordSkipped):
        assert matmul(16, 24, 12)[0].trace.key == slow.trace_key


def test_what_cannot_be_tuned_is_left_alone(log: Path) -> None:
    n = te.size_var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1.0, name="B")
    s: Schedule = te.create_schedule(B.op)
    with silent(), apply_history_best(log):
        tensorlang.build(s, [A, B, n], "interpreter")
