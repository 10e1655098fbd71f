"""Tuned records where no log is named: build(schedule="best"), topi.schedule, and what both say."""

from __future__ import annotations

import logging
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import config, driver, te, topi
from tensorlang.autotune import RecordSkipped, Status, TuningRecord, apply_best, apply_history_best
from tensorlang.autotune.records.store import log_path
from tensorlang.autotune.space.seeds import library_sketch
from tensorlang.autotune.task import task_of
from tensorlang.errors import DefinitionError, RecordError, TargetError
from tensorlang.schedule import Schedule
from tensorlang.target import parse
from tensorlang.te.operation import Tensor
from tests.programs import with_extern

from .records.hand import write_log

ROOT = Path(__file__).parents[2]
TARGET = parse("llvm -num-cores=1")
ILLEGAL = [{"step": "vectorize", "stage": "total", "axis": "k"}]


def totals(rows: int, columns: int = 24) -> list[Tensor]:
    """Sums of rows: an input and an output."""
    A = te.placeholder((rows, columns), name="A")
    k = te.reduce_axis((0, columns), name="k")
    made: Any = te.compute((rows,), lambda i: te.sum(A[i, k], axis=k), name="total")
    return [A, made]


def record_of(tensors: list[Tensor], factor: int = 4, seconds: float = 1e-3, **changes: Any) -> TuningRecord:
    """A record of a split and unrolled sum."""
    task = task_of(tensors, "totals", [int(str(e)) for e in tensors[0].shape], TARGET)
    s = te.create_schedule(tensors[-1].op)
    s["total"].unroll(s["total"].split("k", factor=factor)[1])
    made = TuningRecord(
        task.workload, TARGET.to_json(), 1, "by hand", s.trace.to_json(), s.trace.key, {}, Status.OK, (seconds,),
        time="2026-01-02T03:04:05Z",
    )  # fmt: skip
    return replace(made, **changes)


def write(*records: TuningRecord) -> Path:
    """Append records to this machine's log of the default store."""
    return write_log(log_path("default"), *records)


def split_of(s: Schedule) -> str:
    """The first step."""
    return str(s).splitlines()[0]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    with config.override(store=tmp_path / "store"), warnings.catch_warnings():
        warnings.simplefilter("error")
        yield tmp_path / "store"


def test_best_builds_the_record_of_the_store(store: Path) -> None:
    A, total = totals(16)
    write(record_of([A, total], 4, 2e-3), record_of([A, total], 8, 1e-3))
    f = tensorlang.build([A, total], target=TARGET, schedule="best")
    fast = te.create_schedule(total.op)
    fast[total].unroll(fast[total].split("k", factor=8)[1])
    assert f.source("loops") == tensorlang.build(fast, [A, total], TARGET).source("loops")
    a, b = np.arange(16 * 24, dtype=np.float32).reshape(16, 24), np.empty(16, np.float32)
    f(a, b)
    np.testing.assert_array_equal(b, a.sum(axis=1))
    again = tensorlang.build(te.create_schedule(total.op), [A, total], TARGET, schedule="best")
    assert again.source("loops") == f.source("loops")
    assert tensorlang.build(te.create_schedule(total.op), [A, total], TARGET).source("loops") != f.source("loops")


def test_best_asks_the_histories_in_use_first_the_inner_one_before_the_outer_one(store: Path) -> None:
    tensors = totals(16)
    plans = {factor: apply_best([record_of(tensors, factor)], tensors, TARGET) for factor in (2, 4, 8)}
    loops = {factor: tensorlang.build(s, tensors, TARGET).source("loops") for factor, s in plans.items()}
    assert len(set(loops.values())) == 3

    def best() -> str:
        return str(tensorlang.build(tensors, target=TARGET, schedule="best").source("loops"))

    write(record_of(tensors, 2, 1e-6))
    assert best() == loops[2]
    with apply_history_best([record_of(tensors, 4)]):
        assert best() == loops[4]
        with apply_history_best([record_of(tensors, 8)]):
            assert best() == loops[8]
            assert split_of(topi.schedule(tensors[-1], TARGET)) == split_of(plans[8])
        with apply_history_best([record_of(totals(3))], miss="error"):  # not asked: the outer one knows
            assert best() == loops[4]
            assert tensorlang.build(te.create_schedule(tensors[1].op), tensors, TARGET).source("loops") == loops[4]


def test_a_context_may_be_entered_again(store: Path) -> None:
    A, total = totals(16)
    context = apply_history_best([record_of([A, total])])
    with context:
        with context:
            assert topi.schedule(total, TARGET).origin
        assert topi.schedule(total, TARGET).origin
    assert not topi.schedule(total, TARGET).origin


def test_threads_may_share_a_context(store: Path) -> None:
    tensors = totals(16)
    context = apply_history_best([record_of(tensors)])
    everyone = Barrier(2, timeout=10)

    def use(_: int) -> list[str]:
        with context:
            everyone.wait()
            inside = topi.schedule(tensors[1], TARGET).origin
        everyone.wait()
        return [inside, topi.schedule(tensors[1], TARGET).origin]

    with ThreadPoolExecutor(2) as pool:
        for inside, outside in pool.map(use, range(2)):
            assert inside
            assert not outside


@pytest.mark.parametrize("records", [5, [1, 2]])
def test_a_context_of_what_is_no_record_is_refused(records: Any) -> None:
    with pytest.raises(DefinitionError, match=r"records are a log, tuning records, or None, got "):
        apply_history_best(records)


def test_a_miss_is_an_error_that_names_the_nearest_and_what_to_do(store: Path) -> None:
    with pytest.raises(RecordError) as caught:
        tensorlang.build(totals(16), target=TARGET, schedule="best")
    said = str(caught.value)
    assert said.startswith(f"no tuned record of total for {TARGET} with 1 thread\n  the default store {store} has no ")
    assert "autotune.tune(autotune.task_of([inputs, outputs]), log='default')" in said
    assert "with autotune.apply_history_best(log):" in said
    assert "topi.schedule(outputs)" in said
    write(record_of(totals(4096)), record_of(totals(17)), record_of(totals(16, 240)))
    with pytest.raises(RecordError, match=r"the nearest is totals\(17, 24\) \(.*\): A is float32\[17, 24\] there"):
        tensorlang.build(totals(16), target=TARGET, schedule="best")
    other = "llvm -num-cores=2"
    with pytest.raises(RecordError, match=r"has .* for llvm .* with 1 thread, not for .* with 2 threads"):
        tensorlang.build(totals(17), target=other, schedule="best")
    with (
        apply_history_best([record_of(totals(5))], miss="ignore"),
        pytest.raises(
            RecordError, match=r"(?s)the list given has no record.*totals\(5, 24\).*the nearest is totals\(17"
        ),
    ):
        tensorlang.build(totals(16), target=TARGET, schedule="best")


def test_best_is_not_asked_for_what_has_no_records(store: Path) -> None:
    n = te.size_var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1.0, name="B")
    with pytest.raises(RecordError, match=r"no tuned record of B: it has symbolic sizes \(n\), and tuning measures"):
        tensorlang.build([A, B], target=TARGET, schedule="best")
    with pytest.raises(RecordError, match="no tuned record of C: S calls Python"):
        tensorlang.build(with_extern().args, target="interpreter", schedule="best")


def test_best_says_what_it_takes() -> None:
    A, total = totals(16)
    s = te.create_schedule(total.op)
    with pytest.raises(DefinitionError, match="schedule is 'default', 'auto', 'best', or left out, got 'fast'"):
        tensorlang.build(s, [A, total], TARGET, schedule="fast")
    with pytest.raises(DefinitionError, match="takes the tensors, inputs and outputs, or a schedule without a step"):
        tensorlang.build(total, target=TARGET, schedule="best")  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="build needs an output"):
        tensorlang.build([A], target=TARGET, schedule="best")
    with pytest.raises(DefinitionError, match="build needs args"):
        tensorlang.build(s, target=TARGET, schedule="best")
    s[total].split("k", factor=4)
    with pytest.raises(DefinitionError, match="is about all steps, and this schedule has 1 already"):
        tensorlang.build(s, [A, total], TARGET, schedule="best")
    with pytest.raises(
        DefinitionError, match=r"expected a schedule .*; build\(tensors, schedule='auto'\) takes a tuned one"
    ):
        tensorlang.build([A, total], target=TARGET)


def test_an_output_in_the_place_of_an_input_is_one_array(store: Path) -> None:
    @te.hybrid.script
    def doubled(a: Any) -> Any:
        for i in range(8):
            a[i] = a[i] * 2.0
        return a

    A = te.placeholder((8,), name="A")
    B = doubled(A)
    task = task_of([A, B], "doubled", target=TARGET)
    s = te.create_schedule(B.op)
    s["doubled"].split("i", factor=4)
    write(replace(record_of(totals(16)), workload=task.workload, trace=s.trace.to_json(), trace_key=s.trace.key))
    f = tensorlang.build([A, B], target=TARGET, schedule="best")
    a = np.arange(8, dtype=np.float32)
    f(a)
    np.testing.assert_array_equal(a, 2 * np.arange(8))


def test_topi_takes_a_record_and_says_so(
    store: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    A, total = totals(16)
    rules = topi.schedule(total, TARGET)
    assert (rules.origin, "from" in repr(rules)) == ("", False)
    record = record_of([A, total], 8)
    write(record)
    with caplog.at_level(logging.INFO, "tensorlang"):
        s = topi.schedule(total, TARGET)
    assert s.trace.key == record.trace_key
    assert s.origin.startswith("the record of 2026-01-02T03:04:05Z: ")
    assert repr(s) == f"Schedule(total: 2 steps, from {s.origin})"
    assert [r.getMessage() for r in caplog.records] == [f"topi.schedule: total takes {s.origin}"]
    assert apply_best(None, [A, total], TARGET).origin == s.origin
    assert str(topi.schedule(total, TARGET, tuned=False)) == str(rules)
    assert str(topi.schedule(total, "llvm -num-cores=2")) != str(s)
    assert capsys.readouterr().err == ""
    with config.override(log="tuner"):
        topi.schedule(total, TARGET)
    assert capsys.readouterr().err == f"tensorlang tuner: topi.schedule: total takes {s.origin}\n"


def test_a_record_that_is_added_counts_at_once(store: Path) -> None:
    A, total = totals(16)
    with apply_history_best(write(record_of(totals(3))), miss="ignore"):
        assert topi.schedule(total, TARGET).origin == ""
        for factor, seconds in ((4, 1e-3), (8, 1e-4), (6, 1e-5)):
            write(record_of([A, total], factor, seconds))
            assert split_of(topi.schedule(total, TARGET)) == f"s['total'].split('k', factor={factor})"


@pytest.mark.parametrize("steps", [ILLEGAL, [{"step": "bend"}], "no steps"])
def test_topi_skips_a_record_that_is_refused_with_a_warning(store: Path, steps: Any) -> None:
    A, total = totals(16)
    write(record_of([A, total], trace=steps))
    with pytest.warns(
        RecordSkipped, match=r"topi.schedule skips the record of 2026-01-02.* of total is refused: "
    ) as said:
        s = topi.schedule(total, TARGET)
    assert str(s) == str(topi.schedule(total, TARGET, tuned=False))
    assert said[0].filename == __file__
    with pytest.raises(RecordError, match=r"the record of 2026-01-02.*, the best of total, is refused: "):
        tensorlang.build([A, total], target=TARGET, schedule="best")
    good = record_of([A, total], 8)
    write(replace(good, seconds=(1e-9,)))
    with pytest.warns(RecordSkipped), apply_history_best([record_of([A, total], trace=steps)]):
        assert topi.schedule(total, TARGET).trace.key == good.trace_key  # the next that is asked has one


def test_the_next_best_serves_where_the_best_is_refused(store: Path) -> None:
    A, total = totals(16)
    good = record_of([A, total], 8, 1e-5)
    write(
        record_of([A, total], trace=ILLEGAL, seconds=1e-9, time="first"),
        record_of([A, total], trace=[{"step": "bend"}], seconds=1e-8, time="second"),
        record_of([A, total], trace=ILLEGAL, seconds=1e-7, time="the same steps"),
        record_of([A, total], 4, 1e-3),
        good,
    )
    loops = tensorlang.build(apply_best([good], [A, total], TARGET), [A, total], TARGET).source("loops")

    def skipped(asked: str, use: Callable[[], Any]) -> Any:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            made = use()
        assert [str(w.message).partition(": ")[0] for w in said] == [
            f"{asked} skips the record of {time}" for time in ("first", "second")
        ]
        assert "whose schedule of total" in str(said[0].message)
        assert "is refused: IllegalParallel: " in str(said[0].message)
        assert "is refused: unknown schedule step 'bend'" in str(said[1].message)
        assert {(w.category, w.filename) for w in said} == {(RecordSkipped, __file__)}
        return made

    plain = te.create_schedule(total.op)
    assert skipped("topi.schedule", lambda: topi.schedule(total, TARGET)).trace.key == good.trace_key
    built = skipped("build", lambda: tensorlang.build([A, total], target=TARGET, schedule="best"))
    assert built.source("loops") == loops
    with apply_history_best(log_path("default")):
        assert skipped("build", lambda: tensorlang.build(plain, [A, total], TARGET)).source("loops") == loops


def test_other_logs_of_the_store_serve_where_all_of_this_machine_are_refused(store: Path) -> None:
    A, total = totals(16)
    write(record_of([A, total], trace=[{"step": "bend"}], seconds=1e-9, time="here"))
    good = record_of([A, total], 8, 1e-3)
    write_log(store / "there.jsonl", record_of([A, total], trace=ILLEGAL, seconds=1e-9, time="there"), good)
    with pytest.warns(RecordSkipped) as said:
        assert apply_best(None, [A, total], TARGET).trace.key == good.trace_key
    assert [str(w.message).partition(":")[0] for w in said] == [
        f"apply_best skips the record of {time}" for time in ("here", "there")
    ]


def test_all_that_is_refused_is_named(store: Path) -> None:
    A, total = totals(16)
    records = [record_of([A, total], trace=[{"step": f"bend{n}"}], seconds=1e-9 + n, time=str(n)) for n in range(20)]
    write(*records[4:], *records[:4])
    with pytest.raises(
        RecordError, match=r"^8 records of total, the best first, were tried, and all are ref"
    ) as caught:
        tensorlang.build([A, total], target=TARGET, schedule="best")
    lines = str(caught.value).splitlines()[1:]
    assert [line.split(":")[0] for line in lines] == [f"  the record of {n}" for n in range(8)]
    assert "unknown schedule step 'bend7'" in lines[7]


def test_a_record_that_cannot_be_built_gives_way(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    A, total = totals(16)
    write(record_of([A, total], 2, 1e-6), record_of([A, total], 8, 1e-3))
    compiled = driver._compiled

    def refusing(s: Schedule, *args: Any, **named: Any) -> Any:
        if "factor=2" in str(s):
            raise TargetError("its tile needs more stack than a thread has")
        return compiled(s, *args, **named)

    monkeypatch.setattr(driver, "_compiled", refusing)
    with pytest.warns(RecordSkipped, match="is refused: its tile needs more stack than a thread has"):
        f = tensorlang.build([A, total], target=TARGET, schedule="best")
    a, b = np.arange(16 * 24, dtype=np.float32).reshape(16, 24), np.empty(16, np.float32)
    f(a, b)
    np.testing.assert_array_equal(b, a.sum(axis=1))
    with pytest.raises(DefinitionError, match="args lack"):  # a mistake of the caller, whatever the record
        tensorlang.build([A, total], [A], TARGET, schedule="best")


def test_a_store_that_cannot_be_read_stops_nobody_but_who_needs_it(store: Path) -> None:
    A, total = totals(16)
    store.mkdir()
    (store / "odd.jsonl").write_text("no log\n")
    with pytest.warns(RecordSkipped, match=r"topi.schedule: .*odd.jsonl is not a tuning log"):
        assert topi.schedule(total, TARGET).origin == ""
    with pytest.raises(RecordError, match="is not a tuning log"):
        tensorlang.build([A, total], target=TARGET, schedule="best")


def test_the_tuner_starts_from_the_rules(store: Path) -> None:
    A, B = te.placeholder((32, 48), name="A"), te.placeholder((48, 40), name="B")
    C = topi.matmul(A, B)
    task = task_of([A, B, C], "matmul", target=TARGET)
    before = library_sketch(task)
    plain = te.create_schedule(C.op)
    plain[C].unroll(plain[C].split(C.op.axis[1], factor=8)[1])
    write(replace(record_of(totals(16)), workload=task.workload, trace=plain.trace.to_json()))
    assert topi.schedule(C, TARGET).origin
    after = library_sketch(task)
    assert before is not None
    assert after is not None
    assert before.start
    assert after.start == before.start


WITHOUT_STORE = """
import sys
from tensorlang import te, topi
A = te.placeholder((16, 24), name="A")
assert topi.schedule(topi.sum(A, axis=1)).origin == ""
print([name for name in sys.modules if name.startswith("tensorlang.autotune")])
"""


@pytest.mark.parametrize("exists", [False, True])
def test_without_records_nothing_of_the_tuner_is_imported(tmp_path: Path, exists: bool) -> None:
    if exists:
        (tmp_path / "store").mkdir()
    environment = {"PYTHONPATH": str(ROOT), "TENSORLANG_STORE": str(tmp_path / "store"), "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_STORE], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_the_default_schedule_needs_no_record(store: Path) -> None:
    A, total = totals(16)
    write(record_of([A, total], 4))
    f = tensorlang.build([A, total], target=TARGET, schedule="default")
    assert f.source("loops") == tensorlang.build(topi.schedule(total, TARGET, tuned=False), [A, total], TARGET).source(
        "loops"
    )


def test_auto_takes_a_record_if_there_is_one(store: Path) -> None:
    (A, total), (B, other) = totals(16), totals(17)
    write(record_of([A, total], 4))
    tuned = te.create_schedule(total.op)
    tuned[total].unroll(tuned[total].split("k", factor=4)[1])
    made = tensorlang.build([A, total], target=TARGET, schedule="auto")
    assert made.source("loops") == tensorlang.build(tuned, [A, total], TARGET).source("loops")
    s = te.create_schedule(other.op)
    f = tensorlang.build(s, [B, other], TARGET, schedule="auto")
    assert not s.trace.steps
    a, out = np.ones((17, 24), np.float32), np.zeros(17, np.float32)
    f(a, out)
    assert (out == 24).all()
    assert f.source("loops") == tensorlang.build([B, other], target=TARGET, schedule="default").source("loops")
