"""An index beside a long log: the best of a program without reading millions of lines.

It is derived: SQLite rows that say where in the log a record is and how it ended. It may be deleted at any time, grows
from where it stopped when the log has grown, and starts anew when the log was replaced or cut. The log stays the truth:
every record that is answered was read from it, and must be what the row says. What lies beside a log is a file like any
other: one with other tables, a link or a device is no index, and where another process holds it, the log is read.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import astuple, fields
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, TypeVar

from tensorlang.autotune.records.log import Log, LogPath, not_a_log, parse_line, read_log
from tensorlang.autotune.records.lookup import Known, Loaded
from tensorlang.autotune.records.record import Status, TuningRecord
from tensorlang.autotune.records.regular import MOST_INDEXED, MOST_LINE, is_regular_or_absent, open_regular
from tensorlang.autotune.records.upgrades import SCHEMA
from tensorlang.dataclass import dataclass
from tensorlang.errors import RecordError

LAYOUT = 2  # grows with the tables below; an index of another layout is made anew
_CHUNK = 16 << 20
_HEAD, _TAIL = 4096, 256  # bytes that tell one log from another
_PATIENCE = 2.0  # seconds to wait for another process that extends the same index; then the log is read itself
_ODD = (TypeError, ValueError, OverflowError, MemoryError, RecursionError)  # what rows of strangers may raise

_TABLES = """
CREATE TABLE state (layout, schema, size, changed, offset, torn, ending, others, reason, head, tail);
CREATE TABLE workloads (id INTEGER PRIMARY KEY, key TEXT UNIQUE, name TEXT, args TEXT, structure TEXT, label TEXT,
main TEXT, does TEXT, operations INTEGER);
CREATE TABLE places (id INTEGER PRIMARY KEY, place TEXT UNIQUE);
CREATE TABLE records (workload INTEGER, place INTEGER, status TEXT, seconds REAL, offset INTEGER, length INTEGER);
CREATE INDEX fastest ON records (workload, status, place, seconds, offset);
"""

_BESIDE = ("-journal", "-wal", "-shm")

T = TypeVar("T")
Row = tuple[Any, ...]


class _Stale(Exception):
    """A row does not fit the log: it was replaced by one that looks the same at both ends."""


@dataclass(frozen=True, slots=True)
class _State:
    """How far a log is indexed, and what it looked like then.

    Lines that are no records: `torn`, `ending` (1 for a torn end, which may be a line that is being written),
    and `others`, records of unknown schemas or malformed ones, the first of them for a `reason`.
    """

    size: int
    changed: int
    offset: int
    torn: int = 0
    ending: int = 0
    others: int = 0
    reason: str = ""
    head: str = ""
    tail: str = ""


def index_path(log: LogPath) -> Path:
    """The file of a log's index."""
    return Path(f"{os.fspath(log)}.index")


class Index:
    """The index of one log, brought up to date when it is opened; a Source of records."""

    def __init__(self, log: LogPath) -> None:
        """Open, extend or make the index; RecordError when the log cannot be read, or no index can be kept here."""
        self.path = Path(log)
        _check_files(index_path(log))
        self._log = _open_log(self.path)
        try:
            self._open()
            self._require_records()
        except sqlite3.Error as error:
            self.close()
            raise RecordError(f"cannot keep an index in {index_path(log)}: {error}") from error

    def _open(self) -> None:
        """Open what there is; start anew when it is damaged or of another layout."""
        try:
            self._database = _connect(index_path(self.path))
            self._refresh()
        except (sqlite3.DatabaseError, *_ODD) as error:
            if isinstance(error, sqlite3.OperationalError) and "no such" not in str(error):
                raise  # locked, read-only, full disk: making it anew would not help
            self._start_anew()

    def _start_anew(self) -> None:
        self.close()
        self._log = _open_log(self.path)
        for ending in (*_BESIDE, ""):  # a journal that is left behind would be played into the new file
            Path(f"{index_path(self.path)}{ending}").unlink(missing_ok=True)
        self._database = _connect(index_path(self.path))
        self._refresh()

    def _require_records(self) -> None:
        """Raise RecordError, and keep no index, for a file that holds something, but no record."""
        if self.skipped and not self._database.execute("SELECT 1 FROM records LIMIT 1").fetchone():
            reason = self._state.reason
            self.close()
            index_path(self.path).unlink(missing_ok=True)
            raise not_a_log(self.path, reason)

    def close(self) -> None:
        """Close the index and its log."""
        with suppress(AttributeError, sqlite3.Error):  # it may not have come to that
            self._database.close()
        self._log.close()

    def __enter__(self) -> Index:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def skipped(self) -> str:
        """What of the log is no record, as text; empty when all is."""
        state = self._state
        return Log(self.path, (), state.torn + state.ending, state.others, state.reason).skipped

    def best(self, key: str, place: str | None = None) -> TuningRecord | None:
        """The fastest ok record of a program; in one place, or anywhere."""
        return self._sound(lambda: next(iter(self._fastest(key, place, 1)), None), lambda log: log.best(key, place))

    def fastest(self, key: str, place: str, count: int) -> list[TuningRecord]:
        """Up to `count` ok records of a program in one place, the fastest first."""
        return self._sound(lambda: self._fastest(key, place, count), lambda log: log.fastest(key, place, count))

    def _fastest(self, key: str, place: str | None, count: int) -> list[TuningRecord]:
        query = "SELECT offset, length, seconds FROM records WHERE workload = (SELECT id FROM workloads WHERE key = ?) "
        query += "AND status = 'ok' AND seconds > 0 "
        if place is not None:
            query += "AND place = (SELECT id FROM places WHERE place = ?) "
        query += "ORDER BY seconds, offset LIMIT ?"
        values = (key, count) if place is None else (key, place, count)
        return list(map(self._record, self._database.execute(query, values).fetchall()))

    def bests(self, key: str | None = None) -> list[TuningRecord]:
        """The fastest ok record of every program and place; with a key, of one program."""
        query = "SELECT offset, length, MIN(seconds) FROM records WHERE status = 'ok' AND seconds > 0 "
        if key is not None:
            query += "AND workload = (SELECT id FROM workloads WHERE key = ?) "
        query += "GROUP BY workload, place"
        values = () if key is None else (key,)

        def search() -> list[TuningRecord]:
            return list(map(self._record, sorted(self._database.execute(query, values).fetchall())))

        return self._sound(search, lambda log: log.bests(key))

    def records(self, key: str, place: str) -> list[TuningRecord]:
        """All records of a program in one place, in the order of the log."""
        query = "SELECT offset, length, seconds FROM records WHERE workload = (SELECT id FROM workloads WHERE key = ?) "
        query += "AND place = (SELECT id FROM places WHERE place = ?)"

        def search() -> list[TuningRecord]:
            return list(map(self._record, sorted(self._database.execute(query, (key, place)).fetchall())))

        return self._sound(search, lambda log: log.records(key, place))

    def statuses(self, key: str) -> Counter[str]:
        """How many records of a program ended how."""
        query = "SELECT status, COUNT(*) FROM records WHERE workload = (SELECT id FROM workloads WHERE key = ?) "
        query += "GROUP BY status"

        def search() -> Counter[str]:
            rows = self._database.execute(query, (key,)).fetchall()
            return Counter({Status(status).value: int(count) for status, count in rows})

        return self._sound(search, lambda log: log.statuses(key))

    def workloads(self) -> Sequence[Known]:
        """All programs, in order of first appearance."""
        query = "SELECT key, name, args, structure, label, main, does, operations FROM workloads ORDER BY id"

        def search() -> Sequence[Known]:
            rows = self._database.execute(query).fetchall()
            return [Known(key, name, tuple(json.loads(args)), *rest) for key, name, args, *rest in rows]

        return self._sound(search, lambda log: log.workloads())

    def _sound(self, search: Callable[[], T], in_log: Callable[[Loaded], T]) -> T:
        """The answer of a search; when the log turns out to be another, of the same search on a new index.

        Where that does not help, or somebody holds the index, the log itself is asked.
        """
        try:
            try:
                return search()
            except (_Stale, *_ODD):
                self._start_anew()
                return search()
        except _Stale:
            raise RecordError(f"{self.path} changes under its readers; try again") from None
        except (sqlite3.Error, *_ODD):
            return in_log(Loaded(read_log(self.path)))

    def _record(self, row: Row) -> TuningRecord:
        """The record of a row, read from the log."""
        offset, length, seconds = row
        if not 0 < length <= MOST_LINE or offset < 0:
            raise _Stale
        try:
            record = TuningRecord.from_json(parse_line(os.pread(self._log.fileno(), length, offset)))
        except RecordError:
            raise _Stale from None
        if record.median != (math.inf if seconds is None else seconds):
            raise _Stale
        return record

    def _refresh(self) -> None:
        """Index what was appended since the last time, or all of it when the log is another."""
        status = os.fstat(self._log.fileno())
        state = _read_state(self._database)
        if state is not None and (state.size, state.changed) == (status.st_size, status.st_mtime_ns):
            self._state = state
            return
        self._database.execute("BEGIN IMMEDIATE")
        try:
            state = _read_state(self._database)  # another process may have extended it meanwhile
            if state is None or not self._continues(state):
                _empty(self._database)
                state = _State(0, 0, 0)
            status = os.fstat(self._log.fileno())
            rows = _Rows(self._database, state)
            offset = self._extend(rows, state.offset, status.st_size)
            ending = int(bool(os.pread(self._log.fileno(), _TAIL, offset).strip()))
            ends = self._digest(0, min(_HEAD, offset)), self._digest(max(0, offset - _TAIL), offset)
            size, changed = status.st_size, status.st_mtime_ns
            self._state = _State(size, changed, offset, rows.torn, ending, rows.others, rows.reason, *ends)
            self._database.execute("DELETE FROM state")
            values = (LAYOUT, SCHEMA, *astuple(self._state))
            self._database.execute(f"INSERT INTO state VALUES ({', '.join('?' * len(values))})", values)
            self._database.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self._database.execute("ROLLBACK")
            raise

    def _continues(self, state: _State) -> bool:
        """Whether the log begins with what was indexed of it."""
        offset = state.offset
        ends = self._digest(0, min(_HEAD, offset)), self._digest(max(0, offset - _TAIL), offset)
        return os.fstat(self._log.fileno()).st_size >= offset and ends == (state.head, state.tail)

    def _digest(self, start: int, stop: int) -> str:
        return hashlib.sha256(os.pread(self._log.fileno(), stop - start, start)).hexdigest()[:32]

    def _extend(self, rows: _Rows, start: int, stop: int) -> int:
        """Add the records of whole lines between two offsets; return where the last whole line ends."""
        while start < stop:
            content = os.pread(self._log.fileno(), min(_CHUNK, stop - start), start)
            end = content.rfind(b"\n") + 1
            if not end and len(content) < _CHUNK and parse_line(content) is None:
                break  # a line that is being written
            end = end or len(content)  # the last line without its newline, or what is too long for a record
            rows.add(content[:end], start)
            start += end
        return start


class _Rows:
    """Inserts records, with their workloads and places."""

    def __init__(self, database: sqlite3.Connection, state: _State) -> None:
        self._database = database
        self.torn, self.others, self.reason = state.torn, state.others, state.reason
        self._workloads: dict[str, int] = dict(database.execute("SELECT key, id FROM workloads"))
        self._places: dict[str, int] = dict(database.execute("SELECT place, id FROM places"))
        self._spellings: dict[str, int] = {}

    def add(self, content: bytes, start: int) -> None:
        """Add the records of whole lines that begin at an offset of the log."""
        rows: list[Row] = []
        for line in content.split(b"\n"):
            data = parse_line(line) if line.strip() else None
            if data is not None:
                try:
                    rows.append((*self._values(TuningRecord.from_json(data)), start, len(line)))
                except RecordError as error:
                    self.others += 1
                    self.reason = self.reason or str(error)
            elif line.strip():
                self.torn += 1
            start += len(line) + 1
        self._database.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?)", rows)

    def _values(self, record: TuningRecord) -> Row:
        """Workload, place, status and median of a record."""
        key, place = record.workload.key, f"{record.target} x {record.threads}"  # quicker than record.place
        if key not in self._workloads:
            self._workloads[key] = self._insert_workload(Known.of(record.workload))
        if place not in self._spellings:
            self._spellings[place] = self._place(record.place)
        median = record.median if record.seconds else None
        return self._workloads[key], self._spellings[place], record.status.value, median

    def _place(self, place: str) -> int:
        if place not in self._places:
            self._places[place] = self._insert("INSERT INTO places (place) VALUES (?)", (place,))
        return self._places[place]

    def _insert_workload(self, known: Known) -> int:
        row = {f.name: getattr(known, f.name) for f in fields(known)} | {"args": json.dumps(known.args)}
        marks = ", ".join("?" * len(row))
        return self._insert(f"INSERT INTO workloads ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))

    def _insert(self, statement: str, values: Row) -> int:
        return int(self._database.execute(statement, values).lastrowid or 0)


def _open_log(path: Path) -> BinaryIO:
    try:
        file = os.fdopen(open_regular(path), "rb", buffering=0)
        size = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        raise RecordError(f"no such log: {path}") from None
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
    if size > MOST_INDEXED:
        file.close()
        raise RecordError(f"cannot read {path}: it has {size:,} bytes, and at most {MOST_INDEXED:,} are read")
    return file


def _check_files(path: Path) -> None:
    """RecordError where SQLite would open what is no file, or follow a link and write there."""
    for name in (path, *(path.with_name(path.name + ending) for ending in _BESIDE)):
        if not is_regular_or_absent(name):
            raise RecordError(f"cannot keep an index in {name}: it is no regular file")


def _connect(path: Path) -> sqlite3.Connection:
    """Open an index; sqlite3.DatabaseError for a database with anything else in it than tables of ours."""
    database = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)
    database.execute("PRAGMA trusted_schema = OFF")
    database.execute("PRAGMA synchronous = OFF")  # derived: what a power cut takes is made again
    known = set(filter(None, map(_plain, _TABLES.split(";"))))
    for (text,) in database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall():
        if _plain(text) not in known:  # a view or a trigger would run here
            database.close()
            raise sqlite3.DatabaseError("it is no index of this layout")
    return database


def _plain(statement: object) -> str:
    return " ".join(str(statement).split())


def _read_state(database: sqlite3.Connection) -> _State | None:
    """How far the log is indexed; None when the index is new, or of another layout or schema."""
    if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'state'").fetchone():
        return None
    row = database.execute("SELECT * FROM state").fetchone()
    return _State(*row[2:]) if row is not None and row[:2] == (LAYOUT, SCHEMA) else None


def _empty(database: sqlite3.Connection) -> None:
    for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        database.execute(f"DROP TABLE {name}")
    for statement in filter(str.strip, _TABLES.split(";")):
        database.execute(statement)
