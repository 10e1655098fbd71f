"""The index beside a log: what it answers is in the log, whatever happens to either file."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorlang.autotune.records import index as indexes
from tensorlang.autotune.records import store
from tensorlang.autotune.records.index import Index, index_path
from tensorlang.autotune.records.log import read_log, record_line
from tensorlang.autotune.records.lookup import Loaded
from tensorlang.autotune.records.record import Status, TuningRecord
from tensorlang.autotune.records.store import INDEX_FROM, open_source
from tensorlang.errors import RecordError

from .hand import write_log


def _of(record: TuningRecord, key: str, seconds: float, **changes: object) -> TuningRecord:
    workload = replace(record.workload, key=key, args=(key,), program=f"input A: float32[{len(key)}]\n")
    return replace(record, workload=workload, seconds=(seconds,), **changes)  # type: ignore[arg-type]


def _same_answers(log: Path) -> None:
    """The index answers as the records in memory do."""
    loaded = Loaded(read_log(log))
    with Index(log) as index:
        assert index.workloads() == loaded.workloads()
        assert sorted(map(repr, index.bests())) == sorted(map(repr, loaded.bests()))
        assert index.skipped == loaded.skipped
        for known in loaded.workloads():
            assert index.statuses(known.key) == loaded.statuses(known.key)
            assert index.best(known.key) == loaded.best(known.key)
            assert sorted(map(repr, index.bests(known.key))) == sorted(map(repr, loaded.bests(known.key)))
            for place in {record.place for record in loaded.log.records}:
                assert index.best(known.key, place) == loaded.best(known.key, place)
                assert index.records(known.key, place) == loaded.records(known.key, place)
                for count in (1, 3, 100):
                    assert index.fastest(known.key, place, count) == loaded.fastest(known.key, place, count)


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 3), st.sampled_from(list(Status)), st.floats(1e-6, 1.0)),
        max_size=12,
    ),
    st.integers(0, 12),
    st.binary(max_size=20).filter(lambda torn: b"\n" not in torn),
)
def test_an_index_answers_as_the_log_does(
    tmp_path_factory: pytest.TempPathFactory,
    drawn: list[tuple[str, int, Status, float]],
    cut: int,
    torn: bytes,
) -> None:
    """Built in two steps, with a torn line in between."""
    record = TuningRecord.from_json(_SCHEMA_1)
    records = [_of(record, k, s, threads=t, status=status) for k, t, status, s in drawn]
    log = write_log(tmp_path_factory.mktemp("index") / "log", record, *records[:cut])
    _same_answers(log)
    with log.open("ab") as file:
        file.write(b"\n{" + torn)
    _same_answers(log)
    write_log(log, *records[cut:])
    _same_answers(log)


_SCHEMA_1 = read_log(Path(__file__).parent / "data" / "schema1.jsonl").records[0].to_json()


_JUNK: tuple[object, ...] = (None, -1, 1e400, float("nan"), "", "\ud800", "é", [], {}, [1, "x"], True, 10**400, [[]], 3)


def _mutated(data: object, rng: random.Random) -> object:
    """JSON data with one part of it, somewhere, replaced by what does not belong there, or taken out."""
    if isinstance(data, dict) and data and rng.random() < 0.8:
        key = rng.choice(list(data))
        return {k: _mutated(v, rng) if k == key else v for k, v in data.items() if k != key or rng.random() < 0.8}
    if isinstance(data, list) and data and rng.random() < 0.6:
        position = rng.randrange(len(data))
        return [_mutated(v, rng) if n == position else v for n, v in enumerate(data)]
    return rng.choice(_JUNK)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_nearly_a_record_is_judged_alike(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    record = TuningRecord.from_json(_SCHEMA_1)
    log = write_log(tmp_path / "log", record, _of(record, "other", 1.0))
    lines = [json.dumps(_mutated(_SCHEMA_1, rng)).encode() for _ in range(12)]
    for position in range(0, 12, 5):
        lines[position] = lines[position][: rng.randrange(1 + len(lines[position]))]
    log.write_bytes(log.read_bytes() + b"\n".join(lines))
    _same_answers(log)


def test_an_index_grows_with_its_log_and_reads_only_what_is_new(tmp_path: Path, record: TuningRecord) -> None:
    log = write_log(tmp_path / "log", _of(record, "a", 1.0))
    Index(log).close()
    database = sqlite3.connect(index_path(log))
    database.execute("UPDATE records SET seconds = 0.5")  # shows that the row is not made again
    database.commit()
    database.close()
    write_log(log, _of(record, "b", 2.0))
    Index(log).close()
    database = sqlite3.connect(index_path(log))
    assert database.execute("SELECT seconds FROM records ORDER BY offset").fetchall() == [(0.5,), (2.0,)]
    database.close()
    with Index(log) as index:  # a row that does not fit the log is noticed when it is used
        assert index.best("a") == _of(record, "a", 1.0)


def test_a_deleted_index_is_made_again(tmp_path: Path, record: TuningRecord) -> None:
    log = write_log(tmp_path / "log", _of(record, "a", 1.0))
    Index(log).close()
    index_path(log).unlink()
    _same_answers(log)


@pytest.mark.parametrize("damage", [b"", b"no database at all" * 100, b"SQLite format 3\x00" + b"\x01" * 5000])
def test_a_damaged_index_is_made_again(tmp_path: Path, record: TuningRecord, damage: bytes) -> None:
    log = write_log(tmp_path / "log", _of(record, "a", 1.0))
    Index(log).close()
    index_path(log).write_bytes(damage)
    _same_answers(log)


def test_an_index_of_another_layout_is_made_again(tmp_path: Path, record: TuningRecord) -> None:
    log = write_log(tmp_path / "log", _of(record, "a", 1.0))
    for tables in ("CREATE TABLE state (layout, old)", "CREATE TABLE state (layout, schema, size)"):
        index_path(log).unlink(missing_ok=True)
        database = sqlite3.connect(index_path(log))
        database.executescript(f"{tables}; INSERT INTO state (layout) VALUES (0); CREATE TABLE records (a, b);")
        database.close()
        _same_answers(log)


def test_a_log_that_was_cut_or_replaced_is_indexed_anew(tmp_path: Path, record: TuningRecord) -> None:
    log = write_log(tmp_path / "log", *(_of(record, key, 1.0) for key in "abc"))
    _same_answers(log)
    log.write_bytes(b"\n" + record_line(_of(record, "b", 2.0)) + b"\n")  # shorter
    _same_answers(log)
    write_log(tmp_path / "other", *(_of(record, key, 3.0) for key in "defghi"))
    (tmp_path / "other").replace(log)  # longer, another file
    _same_answers(log)


def test_a_log_of_the_same_ends_is_noticed_by_its_records(tmp_path: Path, record: TuningRecord) -> None:
    """Same size, same first and last bytes: the row tells another time than the line."""
    ends = [_of(record, "x" * 8, 1.0, error="e" * 5000), _of(record, "z" * 8, 1.0)]
    log = write_log(tmp_path / "log", ends[0], _of(record, "y" * 8, 2.0), ends[1])
    Index(log).close()
    before = log.stat()
    middle = _of(record, "y" * 8, 4.0)
    log.write_bytes(b"".join(record_line(r) + b"\n" for r in (ends[0], middle, ends[1])))
    assert log.stat().st_size == before.st_size
    os.utime(log, ns=(before.st_atime_ns, before.st_mtime_ns))
    with Index(log) as index:
        assert index.best("y" * 8) == middle


def test_a_malformed_record_is_passed_over(tmp_path: Path, record: TuningRecord) -> None:
    data = _of(record, "a", 0.001).to_json()
    del data["trace"]
    log = write_log(tmp_path / "log", _of(record, "a", 1.0))
    with log.open("a") as file:
        file.write(f"\n{json.dumps(data)}\n")
    with Index(log) as index:
        assert index.best("a") == _of(record, "a", 1.0)
        assert index.statuses("a") == Counter(ok=1)
        assert index.skipped == read_log(log).skipped


def test_no_index_without_a_log_or_a_place_for_it(tmp_path: Path, record: TuningRecord) -> None:
    with pytest.raises(RecordError, match="no such log"):
        Index(tmp_path / "none")
    with pytest.raises(RecordError, match="cannot read"):
        Index(tmp_path)
    log = write_log(tmp_path / "log", record)
    index_path(log).mkdir()
    with pytest.raises(RecordError, match="cannot keep an index"):
        Index(log)


_INDEXER = """
import sys
from tensorlang.autotune.records.index import Index
with Index(sys.argv[1]) as index:
    print(len(index.bests()))
"""


def test_processes_share_an_index(tmp_path: Path, record: TuningRecord) -> None:
    log = write_log(tmp_path / "log", *(_of(record, f"k{n}", 1.0) for n in range(300)))
    command = [sys.executable, "-c", _INDEXER, str(log)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate()[0].strip() for process in running] == ["300", "300"]
    with Index(log) as index:
        assert index.statuses("k7") == Counter(ok=1)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"no record at all", "no line is a JSON object"),
        (b'{"schema": 99}', "record of schema 99; this version reads schemas 1 to 3: update tensorlang to read it"),
        (b'{"a": 1}', "not a tuning record: no field 'schema'"),
    ],
)
def test_a_file_without_a_record_is_no_log_however_long(tmp_path: Path, line: bytes, why: str) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"\n" + line + b"\n" + b"torn")
    said = []
    for read in (Index, read_log, lambda path: open_source(path).__enter__()):
        with pytest.raises(RecordError) as caught:
            read(log)
        said.append(str(caught.value))
    assert said == [f"{log} is not a tuning log: {why}"] * 3
    assert not index_path(log).exists()


def test_a_long_file_without_a_record_is_read_as_a_short_one(tmp_path: Path, record: TuningRecord) -> None:
    log = tmp_path / "log"
    log.write_bytes((b"x" * 1023 + b"\n") * (INDEX_FROM >> 10))
    with pytest.raises(RecordError, match="is not a tuning log: no line is a JSON object"), open_source(log):
        pass
    write_log(log, record)
    with open_source(log) as source:
        assert isinstance(source, Index)
        assert source.best(record.workload.key) == record


def test_an_index_that_somebody_holds_is_not_waited_for(
    tmp_path: Path, record: TuningRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = write_log(tmp_path / "log", _of(record, "a", 1.0))
    monkeypatch.setattr(indexes, "_PATIENCE", 0.01)
    monkeypatch.setattr(store, "INDEX_FROM", 0)
    with Index(log) as before:
        holder = sqlite3.connect(index_path(log), isolation_level=None)
        holder.execute("BEGIN EXCLUSIVE")
        write_log(log, _of(record, "a", 0.5))
        assert before.best("a") == _of(record, "a", 0.5)  # of the log itself
        with store.open_source(log) as source:
            assert isinstance(source, Loaded)
            assert source.best("a") == _of(record, "a", 0.5)
        holder.close()


@pytest.mark.parametrize("ending", ["", "-journal", "-wal"])
@pytest.mark.parametrize("kind", ["FIFO", "link"])
def test_an_index_is_no_fifo_and_no_link(
    tmp_path: Path, record: TuningRecord, monkeypatch: pytest.MonkeyPatch, ending: str, kind: str
) -> None:
    log, target = write_log(tmp_path / "log", _of(record, "a", 1.0)), tmp_path / "precious"
    place = Path(f"{index_path(log)}{ending}")
    if kind == "FIFO":
        os.mkfifo(place)
    else:
        place.symlink_to(target)
    monkeypatch.setattr(store, "INDEX_FROM", 0)
    with store.open_source(log) as source:
        assert source.best("a") == _of(record, "a", 1.0)
    assert not target.exists()


@pytest.mark.parametrize(
    "change",
    [
        "DROP TABLE places; CREATE VIEW places AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) "
        "SELECT id, 'x' AS place FROM n",
        "CREATE TRIGGER more AFTER DELETE ON state BEGIN SELECT RAISE(FAIL, 'no'); END",
        "UPDATE records SET length = 1000000000000",
        "UPDATE records SET offset = 'far'",
        "UPDATE state SET offset = 'far', size = 0",
        "UPDATE workloads SET args = '['",
    ],
)
def test_an_index_of_somebody_else_is_made_anew(tmp_path: Path, record: TuningRecord, change: str) -> None:
    log = write_log(tmp_path / "log", _of(record, "a", 1.0))
    Index(log).close()
    with sqlite3.connect(index_path(log)) as database:
        database.executescript(change)
    with Index(log) as index:
        assert index.best("a", record.place) == _of(record, "a", 1.0)
        assert [known.key for known in index.workloads()] == ["a"]
