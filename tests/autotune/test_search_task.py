"""Workloads, search tasks and tuning options in auto_scheduler's words; a real, short run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tensorlang
from tensorlang import autotune, te, topi
from tensorlang.autotune import Progress, RecordToFile, SearchTask, TuningOptions, read_log
from tensorlang.errors import DefinitionError, RecordError
from tensorlang.te.operation import Tensor


@autotune.register_workload
def matmul_add(n: int, m: int, k: int, dtype: str) -> list[Tensor]:
    A, B = te.placeholder((n, k), dtype, name="A"), te.placeholder((k, m), dtype, name="B")
    C = te.placeholder((n, m), dtype, name="C")
    r = te.reduce_axis((0, k), name="r")
    matmul = te.compute((n, m), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="matmul")
    out = te.compute((n, m), lambda i, j: matmul[i, j] + C[i, j], name="out")
    return [A, B, C, out]


def test_a_task_is_tuned_and_its_best_applied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, copy = tmp_path / "log.json", tmp_path / "copy.json"
    task = SearchTask(func=matmul_add, args=(16, 32, 8, "float32"), target="llvm -num-cores=1")
    told: list[Progress] = []
    options = TuningOptions(
        num_measure_trials=5,
        measure_callbacks=[RecordToFile(log), RecordToFile(copy), told.append],
        verbose=2,
    )
    result = task.tune(options)
    assert len(result.records) == len(told) == len(read_log(log).records) == len(read_log(copy).records) == 5
    assert task.recorded(options) == 5
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 5
    assert said[0].startswith("matmul_add(16, 32, 8, float32) trial 1/5: ")
    assert result.best is not None

    s, args = task.apply_best(log)
    assert s.trace.key == result.best.trace_key
    assert task.print_best(log) == s.trace.to_python()
    f = tensorlang.build(s, args, task.target)
    a, b = np.ones((16, 8), np.float32), np.ones((8, 32), np.float32)
    c, out = np.full((16, 32), 2, np.float32), np.empty((16, 32), np.float32)
    f(a, b, c, out)
    np.testing.assert_array_equal(out, 10)

    again = task.tune(TuningOptions(num_measure_trials=6, measure_callbacks=[RecordToFile(log)], verbose=0))
    assert (again.resumed, len(again.records)) == (5, 6)
    assert capsys.readouterr().err == ""
    other = SearchTask(func="matmul_add", args=(16, 32, 9, "float32"), target="llvm -num-cores=1")
    with pytest.raises(RecordError, match=r"matmul_add\(16, 32, 8, float32\)"):
        other.apply_best(log)


def test_tuning_stops_when_nothing_gets_better() -> None:
    task = SearchTask(func=matmul_add, args=(4, 4, 4, "float32"), target="llvm -num-cores=1")
    result = task.tune(TuningOptions(num_measure_trials=60, early_stopping=3, verbose=0))
    assert result.best is not None
    after = len(result.records) - 1 - result.records.index(result.best)
    assert after == 3 or len(result.records) < 60
    dag = task.compute_dag
    s, tensors = dag.apply_steps_from_state(result.best)
    assert s.trace.to_json() == result.best.trace and len(tensors) == len(dag.tensors)
    assert dag.infer_bound_from_state(result.best).transform_steps == s.trace.steps


def test_workloads_by_name() -> None:
    task = SearchTask("matmul_add", (4, 4, 4, "float64"))
    assert task.workload_key == SearchTask(matmul_add, (4, 4, 4, "float64")).workload_key
    assert "matmul" in str(task.compute_dag)
    assert repr(task).startswith(f"SearchTask(Task(matmul_add(4, 4, 4, float64), key={task.workload_key}, target='llvm")
    with pytest.raises(DefinitionError, match=r"no workload 'matmul_ad'; .*matmul_add"):
        SearchTask("matmul_ad", (4,))
    with pytest.raises(DefinitionError, match="there is a workload 'matmul_add' already"):
        autotune.register_workload("matmul_add", lambda n: [])
    with pytest.raises(DefinitionError, match="a workload is a function that returns its tensors, got 3"):
        autotune.register_workload(3)  # type: ignore[call-overload]

    @autotune.register_workload("tests/copy", override=True)
    def copy(n: int) -> list[Tensor]:
        A = te.placeholder((n,), name="A")
        return [A, te.compute((n,), lambda i: A[i], name="B")]

    assert SearchTask("tests/copy", (4,)).task.workload.name == "tests/copy"
    assert copy(3)[0].name == "A"


def test_a_workload_named_after_an_operator_is_checked_against_itself() -> None:
    def prod(n: int) -> list[Tensor]:
        A = te.placeholder((n,), name="A")
        return [A, te.compute((n,), lambda i: A[i] * 2.0, name="B")]

    task = SearchTask(func=prod, args=(16,), target="llvm", threads=1)
    assert task.task.workload.name not in topi.OPERATORS
    result = task.tune(TuningOptions(num_measure_trials=1, verbose=0))
    assert result.best is not None
    assert result.best.checked


def test_what_is_no_workload_is_refused() -> None:
    with pytest.raises(DefinitionError, match="func is a workload, or the name of one, got 5"):
        SearchTask(func=5)  # type: ignore[arg-type]
