"""What is nearest to a program that has no record, and the store where records are by default."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from tensorlang import config
from tensorlang.autotune import RecordSkipped, Status, Task, TuningRecord, apply_best, create_task, find_best
from tensorlang.autotune.apply import find_nearest, records_of
from tensorlang.autotune.records import store
from tensorlang.autotune.records.index import Index, index_path
from tensorlang.autotune.records.log import read_log
from tensorlang.autotune.records.lookup import Loaded, structure_of
from tensorlang.autotune.records.store import default_store, log_path, logs_to_read, open_source
from tensorlang.errors import RecordError

from .hand import TARGET, hand_record, write_log


def _task(*sizes: int, threads: int = 1) -> Task:
    return create_task("matmul", sizes, TARGET, threads)


@pytest.fixture(params=[1, 1 << 30], ids=["index", "memory"], autouse=True)
def long_log(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run with every log long enough for an index, and with none."""
    monkeypatch.setattr(store, "INDEX_FROM", request.param)
    return bool(request.param == 1)


def test_long_logs_have_an_index(tmp_path: Path, long_log: bool) -> None:
    log = write_log(tmp_path / "log", hand_record())
    with open_source(log) as source:
        assert isinstance(source, Index if long_log else Loaded)
    assert index_path(log).exists() == long_log


def test_where_no_index_can_be_kept_the_log_is_read(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log", hand_record())
    index_path(log).mkdir()
    assert find_best(log, _task(24, 40, 16)) == hand_record()


def test_the_best_is_found_and_applied(tmp_path: Path) -> None:
    slow, fast = hand_record(seconds=2e-3), hand_record(seconds=1e-3, seed=1)
    wrong = hand_record(seconds=1e-9, status=Status.WRONG_ANSWER)
    log = write_log(tmp_path / "log", slow, fast, wrong, hand_record((8, 8, 8), 1e-6))
    assert find_best(log, _task(24, 40, 16)) == fast
    assert apply_best(log, _task(24, 40, 16)).trace.key == fast.trace_key
    assert records_of(log, _task(24, 40, 16)) == [slow, fast, wrong]
    assert records_of(tmp_path / "none", _task(24, 40, 16)) == []


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([hand_record((8, 8, 8)), hand_record((24, 40, 32)), hand_record((900, 900, 900))],
         r"no record of matmul\(24, 40, 16, float32\) \(\w+\); it has .*; "
         r"the nearest is matmul\(24, 40, 32, float32\) \(same name, other sizes\)"),
        ([hand_record((8, 8, 8)), hand_record((24, 40, 32), status=Status.CRASH)],
         r"the nearest is matmul\(8, 8, 8, float32\)"),
        ([hand_record(threads=7)], r"has matmul\(24, 40, 16, float32\) for llvm .* with 7 threads, not for llvm "),
        ([hand_record(status=Status.CRASH, seconds=1.0), hand_record((8, 8, 8))],
         r"1 record of .*, but none is ok \(1 crash\); the nearest is matmul\(8, 8, 8"),
        ([hand_record(status=Status.CRASH)], r"none is ok \(1 crash\)$"),
        ([hand_record((n, n, n)) for n in range(8, 15)], r"it has matmul\(8, .* and 2 more; the nearest is matmul\(14"),
    ],
)  # fmt: skip
def test_a_miss_names_the_nearest(tmp_path: Path, records: list[TuningRecord], message: str) -> None:
    log = write_log(tmp_path / "log", *records)
    with pytest.raises(RecordError, match=message):
        apply_best(log, _task(24, 40, 16))


def test_the_same_structure_is_near_whatever_its_name(tmp_path: Path) -> None:
    unnamed = hand_record((64, 64, 64))
    unnamed = replace(unnamed, workload=replace(unnamed.workload, name="program", args=()))
    other = hand_record((24, 40, 16))
    other = replace(other, workload=replace(other.workload, name="f.py:f", key="x" * 16, program="input Z: int8[3]\n"))
    found = find_nearest(write_log(tmp_path / "log", other, unnamed), _task(24, 40, 16))
    assert found is not None
    assert (found.record, found.why) == (unnamed, "same structure, other extents")


@pytest.mark.parametrize("size", [float("inf"), 10**400, 1e-320, float("nan")])
def test_strange_sizes_are_far_away(tmp_path: Path, size: float) -> None:
    strange, near = hand_record((8, 8, 8)), hand_record((24, 40, 17))
    strange = replace(strange, workload=replace(strange.workload, args=(size, 40, 16, "float32"), key="x" * 16))
    found = find_nearest(write_log(tmp_path / "log", strange, near), _task(24, 40, 16))
    assert found is not None
    assert found.record == near


def test_a_stranger_is_not_near(tmp_path: Path) -> None:
    stranger = create_task("softmax", (8, 8), TARGET, threads=1)
    assert find_nearest(write_log(tmp_path / "log", hand_record()), stranger) is None
    with pytest.raises(RecordError, match=r"it has matmul\(24, 40, 16, float32\)$"):
        find_best(tmp_path / "log", stranger)


def test_a_structure_is_a_program_without_its_numbers() -> None:
    texts = [create_task("matmul", sizes, TARGET).program.text for sizes in ((8, 8, 8), (24, 40, 16))]
    assert len(set(texts)) == 2
    assert structure_of(texts[0]) == structure_of(texts[1])
    assert structure_of(create_task("softmax", (8, 8), TARGET).program.text) != structure_of(texts[0])
    assert structure_of("") == ""


def test_the_default_store_is_a_folder_with_a_log_for_every_machine(tmp_path: Path) -> None:
    task = _task(24, 40, 16)
    with config.override(store=tmp_path / "store"):
        with pytest.raises(RecordError, match=r"the default store .* has no records yet; tune with log='default'"):
            find_best(None, task)
        own = log_path("default")
        assert own == default_store()
        assert (own.parent, own.suffix) == (tmp_path / "store", ".jsonl")
        write_log(own.parent / "another.jsonl", hand_record(seconds=1e-6, seed=1))
        write_log(own.parent / "zebra.jsonl", hand_record(seconds=1e-7, seed=2))
        assert find_best(None, task).seed == 2  # nothing measured here: the fastest of the others
        write_log(own, hand_record(seconds=1e-3, seed=3))
        assert [path.name for path in logs_to_read("default")] == [own.name, "another.jsonl", "zebra.jsonl"]
        assert find_best(None, task).seed == 3  # measured here: counts, though others are faster elsewhere
        assert apply_best(None, task).trace.key == hand_record().trace_key
        with pytest.raises(RecordError, match=rf"{tmp_path / 'store'} has no record of .*; the nearest is matmul\(24"):
            find_best(None, _task(24, 40, 17))
    with config.override(store=own), pytest.raises(RecordError, match="cannot make the default store"):
        log_path("default")


def test_a_log_of_the_store_that_cannot_be_read_is_left_out_with_a_warning(tmp_path: Path) -> None:
    task = _task(24, 40, 16)
    with config.override(store=tmp_path / "store"):
        odd, own = log_path("default").with_name("odd.jsonl"), log_path("default")
        odd.mkdir(parents=True)  # a log in name only
        write_log(own, hand_record(seed=1))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert find_best(None, task).seed == 1  # nobody needs the other
        with (
            pytest.warns(RecordSkipped, match=r"the default store: cannot read .*odd.jsonl"),
            pytest.raises(RecordError, match="the nearest is matmul"),
        ):
            find_best(None, _task(24, 40, 17))
        own.unlink()
        own.mkdir()
        write_log(own.with_name("another.jsonl"), hand_record(seed=2))
        with pytest.warns(RecordSkipped):
            assert find_best("default", task).seed == 2
        own.with_name("another.jsonl").unlink()
        with pytest.raises(RecordError, match=rf"cannot read .*{own.name}"):
            find_best(None, task)


def test_a_path_is_a_path(tmp_path: Path) -> None:
    assert log_path(str(tmp_path / "x")) == tmp_path / "x"
    assert logs_to_read(tmp_path / "x") == [tmp_path / "x"]
    assert read_log(write_log(tmp_path / "x", hand_record())).records == (hand_record(),)
