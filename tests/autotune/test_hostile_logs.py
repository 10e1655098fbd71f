"""Logs of strangers: what is bad of them is skipped in a line, and the next best counts, whoever asks."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tensorlang
from tensorlang import autotune, topi
from tensorlang.autotune import RecordSkipped, Task, TuningRecord, create_task, read_log, tune
from tensorlang.autotune.report.writing import make_report
from tensorlang.autotune.search.pretrained import chosen_model
from tensorlang.errors import RecordError
from tensorlang.schedule import Schedule

from .records.hand import record_of, write_log

IR = """
@text = internal constant [5 x i8] c"true\\00"
define ptr @memset(ptr %d, i32 %c, i64 %n) { ret ptr null }
"""
COPY = {"step": "cache_read", "tensor": "B", "scope": "global", "readers": ["C"]}
IMPORT = {"step": "pragma", "stage": "C", "axis": "i", "pragma": "import_llvm", "value": IR}
BAD: dict[str, Any] = {
    "code": [IMPORT],
    "assembly": [{**IMPORT, "value": 'module asm "define"'}],
    "zero": [COPY, {"step": "transform_layout", "stage": "B.global", "axes": ["a", "b"], "index": ["a//0", "b"]}],
    "large": [{"step": "skew", "stage": "C", "axis": "j", "by": "i", "factor": 10**18}],
    "endless": [COPY, {"step": "storage_align", "stage": "B.global", "axis": "ax0", "factor": 10**9 + 7, "offset": 3}],
    "unrolled": [{"step": "pragma", "stage": "C", "axis": "i", "pragma": "auto_unroll_max_step", "value": 10**15}],
    "lines": [{"step": "split\n\x1b[2J", "stage": "C"}],
}


@pytest.fixture
def task() -> Task:
    return create_task("matmul", (24, 40, 16))


@pytest.fixture
def log(task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A default store with the log of a colleague: bad records, each faster than the next, then a good one."""
    monkeypatch.setenv("TENSORLANG_STORE", str(tmp_path))
    good = replace(record_of(task), threads=task.threads)
    bad = [replace(good, trace=trace, seconds=(1e-9 * n,)) for n, trace in enumerate(BAD.values(), 1)]
    return write_log(tmp_path / "colleague.jsonl", *bad, good)


def _in_history(log: Path, task: Task) -> Schedule:
    with autotune.apply_history_best(log):
        return topi.schedule(list(task.outputs), task.target)


WAYS: dict[str, Callable[[Path, Task], Any]] = {
    "apply_best": autotune.apply_best,
    "apply_history_best": _in_history,
    "topi.schedule": lambda log, task: topi.schedule(list(task.outputs), task.target),
    "build": lambda log, task: tensorlang.build(list(task.tensors), target=task.target, schedule="best"),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_next_best_is_taken(way: str, log: Path, task: Task) -> None:
    with pytest.warns(RecordSkipped) as warned:
        made = WAYS[way](log, task)
    texts = [str(w.message) for w in warned if w.category is RecordSkipped]
    assert len(texts) == len(BAD)
    assert all(text.isprintable() and len(text) < 1200 for text in texts)
    if isinstance(made, Schedule):
        assert made.trace.to_json() == record_of(task).trace


def test_a_search_does_not_go_on_from_what_is_not_proven(log: Path, task: Task) -> None:
    with pytest.warns(RecordSkipped, match="the search skips the record"):
        result = tune(task, trials=1, log=log, measurer=_Idle())  # type: ignore[arg-type]
    assert result.best is not None
    assert result.best.trace == record_of(task).trace


class _Idle:
    """A measurer of a search that has nothing left to measure."""

    batch = 1

    def rates(self) -> None:
        return None

    def peak_gflops(self) -> float:
        return 0.0

    def measure(self, *_: object) -> Iterator[Any]:
        yield from ()

    def compare(self, trace: Any) -> None:
        return None


def test_a_store_passes_over_what_is_no_file(log: Path, task: Task) -> None:
    os.mkfifo(log.with_name("pipe.jsonl"))
    log.with_name("zero.jsonl").symlink_to("/dev/zero")
    with pytest.warns(RecordSkipped) as warned:
        assert autotune.apply_best(None, task).trace.steps
    texts = [str(w.message) for w in warned]
    assert any("pipe.jsonl: it is a FIFO, no regular file" in text for text in texts)
    assert any("zero.jsonl: it is a device, no regular file" in text for text in texts)


def test_a_report_holds_no_markup_and_no_unproven_steps(log: Path, task: Task) -> None:
    name = "</pre><script>alert(1)</script>"
    records = [_named(record, name) for record in read_log(log).records]
    page = make_report(name, records).to_html()
    assert "<script" not in page and "&lt;script&gt;" in page
    (shown,) = make_report("log", [r for r in records if r.trace == BAD["zero"]]).schedules.values()
    assert shown.python.startswith("# ") and shown.nest_error


def _named(record: TuningRecord, name: str) -> TuningRecord:
    return replace(record, workload=replace(record.workload, name=name), sketch=name, error=name)


def test_a_deep_or_endless_line_is_no_record(log: Path, task: Task) -> None:
    data = json.loads(log.read_text().splitlines()[-1])
    deep = json.dumps({**data, "host": {"name": "x"}}).replace('"x"', "[" * 500 + "]" * 500)
    with log.open("a") as file:
        file.write(deep + "\n")
    assert read_log(log).torn == 1
    texts = json.dumps({**data, "error": "[" * 500})
    log.write_text(texts + "\n")
    assert len(read_log(log).records) == 1


def test_a_model_is_a_small_file_of_its_format(tmp_path: Path) -> None:
    for content, why in ((b"binf" + bytes(100), "neither UBJSON nor JSON"), (b"{", "is no model file of the tuner")):
        path = tmp_path / "model"
        path.write_bytes(content)
        with pytest.raises(RecordError, match=why):
            chosen_model(path)
    with pytest.raises(RecordError, match="it is a device, no regular file"):
        chosen_model("/dev/zero")
    with path.open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(RecordError, match="at most 67,108,864 are read"):
        chosen_model(path)
