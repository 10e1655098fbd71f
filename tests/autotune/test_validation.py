"""Validation: every record is replayed on its program, and what cannot be is told apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tensorlang.autotune import TuningRecord, create_task, explain
from tensorlang.autotune.importers.programs import sources_from
from tensorlang.autotune.templates.task import template_task
from tensorlang.autotune.validation import Outcome, validate
from tensorlang.errors import RecordError

from .records.hand import TARGET, hand_record, record_of

OPERATORS = Path(__file__).parent / "operators.py"


def _with_workload(record: TuningRecord, **changes: str) -> TuningRecord:
    return replace(record, workload=replace(record.workload, **changes))  # type: ignore[arg-type]


ILLEGAL = [*hand_record().trace, {"step": "parallel", "stage": "C", "axis": "k"}]


@pytest.mark.parametrize(
    ("record", "outcome", "why"),
    [
        (hand_record(), Outcome.LEGAL, ""),
        (hand_record(trace=ILLEGAL), Outcome.REFUSED, "is refused: IllegalParallel"),
        (hand_record(trace=[{"step": "bend"}]), Outcome.REFUSED, "bend"),
        (hand_record(trace="C.split"), Outcome.REFUSED, "a trace is a list of steps"),
        (
            _with_workload(hand_record(), program="input A: int8[2]\n"),
            Outcome.DAMAGED,
            "does not have the record's key",
        ),
        (hand_record(target={"kind": "llvm", "gpu": 3}), Outcome.DAMAGED, "malformed target record"),
        (_with_workload(hand_record(), program="", key="0" * 16), Outcome.CHANGED, "is another program by now"),
        (_with_workload(hand_record(), name="program"), Outcome.UNKNOWN, "names no operator and no file:function"),
        (_with_workload(hand_record(), name="mine/dense"), Outcome.UNKNOWN, "it is proven when it is applied"),
        (_with_workload(hand_record(), name="nowhere.py:f"), Outcome.UNKNOWN, "no such file: nowhere.py"),
    ],
)
def test_a_record_is_judged_on_its_program(record: TuningRecord, outcome: Outcome, why: str) -> None:
    (found,) = validate([record], run_files=True)
    assert (found.outcome, found.record) == (outcome, record)
    assert why in found.why
    assert found.sound == (outcome in (Outcome.LEGAL, Outcome.UNKNOWN))
    assert found.to_json()["outcome"] == outcome.value


def test_a_users_function_is_called_again() -> None:
    task = create_task(f"{OPERATORS}:max_of_min", (7, 19, 5, "int32"), TARGET, threads=1)
    (found,) = validate([record_of(task)], run_files=True)
    assert found.outcome is Outcome.LEGAL
    fewer = replace(record_of(task), workload=replace(task.workload, args=(7,)))
    (found,) = validate([fewer], run_files=True)
    assert (found.outcome, "cannot be made again" in found.why) == (Outcome.UNKNOWN, True)


def test_a_users_template_is_called_again() -> None:
    task = template_task(f"{Path(__file__).parent / 'templates' / 'programs.py'}:matmul", (16, 16, 8), TARGET, 1)
    assert task is not None
    (found,) = validate([record_of(task.task)], run_files=True)
    assert found.outcome is Outcome.LEGAL


@pytest.mark.parametrize("word", ["{new}", "{new}:max_of_min", "old.py:max_of_min={new}:max_of_min"])
def test_a_file_that_has_moved_is_named(word: str) -> None:
    task = create_task(f"{OPERATORS}:max_of_min", (7, 19, 5, "int32"), TARGET, threads=1)
    moved = replace(record_of(task), workload=replace(task.workload, name="old.py:max_of_min"))
    (lost,) = validate([moved], run_files=True)
    assert lost.outcome is Outcome.UNKNOWN
    assert lost.why.endswith("no such file: old.py; if the file has moved, say where it is (--program FILE.py)")
    (found,) = validate([moved], sources_from([word.format(new=OPERATORS)]))
    assert found.outcome is Outcome.LEGAL


@pytest.mark.parametrize("name", ["old.py:matmul", "tests/matmul"])
def test_a_template_that_has_moved_is_named(name: str) -> None:
    place = Path(__file__).parent / "templates" / "programs.py"
    task = template_task(f"{place}:matmul", (16, 16, 8), TARGET, 1)
    assert task is not None
    moved = replace(record_of(task.task), workload=replace(task.workload, name=name))
    assert [v.outcome for v in validate([moved])] == [Outcome.UNKNOWN]
    assert [v.outcome for v in validate([moved], sources_from([str(place)]))] == [Outcome.LEGAL]


def test_an_operator_of_the_library_is_not_replaced(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text("def matmul(*sizes):\n    raise RuntimeError\n")
    assert [v.outcome for v in validate([hand_record()], sources_from([str(own)]))] == [Outcome.LEGAL]


def test_a_file_that_a_record_names_is_run_only_when_somebody_asks(tmp_path: Path) -> None:
    mark, own = tmp_path / "ran", tmp_path / "own.py"
    own.write_text(f"open({str(mark)!r}, 'w')\n")
    record = _with_workload(hand_record(), name=f"{own}:f")
    (found,) = validate([record])
    assert found.outcome is Outcome.UNKNOWN
    assert "which is not run unless you ask for it (--run-files, --program)" in found.why
    with pytest.raises(RecordError, match="no timed record of a program that can be made again here"):
        explain([record])
    assert not mark.exists()
    (found,) = validate([record], run_files=True)
    assert mark.exists()
