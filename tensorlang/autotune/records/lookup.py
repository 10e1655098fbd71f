"""Finding records: the best of a program, and the nearest to one that has none.

A `Source` answers from records in memory (`Loaded`), or from an index beside a long log (records.index).
"""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Protocol

from tensorlang import dtypes
from tensorlang.autotune.records.log import Log, best_record, best_records
from tensorlang.autotune.records.record import TuningRecord, WorkloadId
from tensorlang.dataclass import dataclass
from tensorlang.te.forms import OpForm, form_of, text_key

_TYPE = re.compile(rf"\b({'|'.join(sorted(dtypes.TABLE, key=len, reverse=True))})\b")
_NUMBER = re.compile(r"(?<![\w.])\d+(\.\d+)?(e[+-]?\d+)?(?!\w)")


def structure_of(program: str) -> str:
    """A hash of a program's form without its numbers; empty for no text. Equal for one program at other extents."""
    return text_key(_NUMBER.sub("#", form_of(program).text)) if program else ""


def bare(op: OpForm) -> str:
    """What an operation does, whatever its types and its numbers."""
    return "input" if op.is_input else _TYPE.sub("", _NUMBER.sub("#", op.shape))


def mains_of(program: str) -> dict[str, str]:
    """Hashes of the operations that reduce or run in order, first ones first, and of what they do (see `bare`)."""
    return {text_key(op.shape): text_key(bare(op)) for op in form_of(program).ops if op.is_main}


@dataclass(frozen=True, slots=True)
class Known:
    """A workload that a log has records of: what tells how near it is to another.

    `main` is the last operation that reduces or runs in order, `does` what it does, both as hashes (see `mains_of`).
    """

    key: str
    name: str
    args: tuple[Any, ...]
    structure: str
    label: str
    main: str = ""
    does: str = ""
    operations: int = 0

    @staticmethod
    @lru_cache(maxsize=4096)
    def of(workload: WorkloadId) -> Known:
        text = workload.program
        (*_, last), count = [("", ""), *mains_of(text).items()], len(form_of(text).ops)
        return Known(workload.key, workload.name, workload.args, structure_of(text), str(workload), *last, count)


class Source(Protocol):
    """Where records are looked up."""

    @property
    def skipped(self) -> str:
        """What of the log could not be read, as text; empty when all could."""

    def best(self, key: str, place: str | None = None) -> TuningRecord | None:
        """The fastest ok record of a program; in one place (see TuningRecord.place), or anywhere."""

    def fastest(self, key: str, place: str, count: int) -> list[TuningRecord]:
        """Up to `count` ok records of a program in one place, the fastest first."""

    def bests(self, key: str | None = None) -> list[TuningRecord]:
        """The fastest ok record of every program and place; with a key, of one program."""

    def records(self, key: str, place: str) -> list[TuningRecord]:
        """All records of a program in one place, in the order of the log."""

    def statuses(self, key: str) -> Counter[str]:
        """How many records of a program ended how."""

    def workloads(self) -> Sequence[Known]:
        """All programs, in order of first appearance."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Records in memory."""

    log: Log

    @property
    def skipped(self) -> str:
        return self.log.skipped

    def best(self, key: str, place: str | None = None) -> TuningRecord | None:
        return best_record(self.log.records, lambda r: r.workload.key == key and place in (None, r.place))

    def fastest(self, key: str, place: str, count: int) -> list[TuningRecord]:
        found = (r for r in self.log.records if r.ok and r.workload.key == key and r.place == place)
        return heapq.nsmallest(count, found, key=lambda r: r.median)

    def bests(self, key: str | None = None) -> list[TuningRecord]:
        return best_records(r for r in self.log.records if key in (None, r.workload.key))

    def records(self, key: str, place: str) -> list[TuningRecord]:
        return [r for r in self.log.records if r.workload.key == key and r.place == place]

    def statuses(self, key: str) -> Counter[str]:
        return Counter(r.status.value for r in self.log.records if r.workload.key == key)

    def workloads(self) -> Sequence[Known]:
        first: dict[str, WorkloadId] = {}
        for record in self.log.records:
            first.setdefault(record.workload.key, record.workload)
        return list(map(Known.of, first.values()))


@dataclass(frozen=True, slots=True)
class Nearest:
    """The record nearest to a program that has none, and in what it is near."""

    record: TuningRecord
    why: str

    def __str__(self) -> str:
        return f"{self.record.workload} ({self.why})"


_STRUCTURE = "same structure, other extents"
# How near a workload is, nearest kind first; those of a kind are told apart by their sizes.
_KINDS: tuple[tuple[str, Callable[[WorkloadId, Known], bool]], ...] = (
    ("same program", lambda wanted, known: known.key == wanted.key),
    (
        "same name, other sizes",
        lambda wanted, known: known.name == wanted.name and _comparable(wanted.args, known.args),
    ),
    (_STRUCTURE, lambda wanted, known: known.structure == structure_of(wanted.program) != ""),
    ("same name", lambda wanted, known: known.name == wanted.name and known.name != "program"),
    ("same main group", lambda wanted, known: known.does in mains_of(wanted.program).values()),
)


def nearest_record(source: Source, wanted: WorkloadId) -> Nearest | None:
    """Return the ok record nearest to a program: the same one elsewhere, other sizes, or the same structure."""
    workloads = source.workloads()
    for why, holds in _KINDS:
        near = sorted((k for k in workloads if holds(wanted, k)), key=lambda k: _distance(wanted.args, k.args))
        records: Iterator[TuningRecord] = (r for known in near if (r := source.best(known.key)) is not None)
        if why == _STRUCTURE:  # whatever made the programs: their texts differ in numbers, extents among them
            records = iter(sorted(records, key=lambda r: _distance(_numbers(wanted), _numbers(r.workload))))
        record = next(records, None)
        if record is not None:
            return Nearest(record, why)
    return None


def _numbers(workload: WorkloadId) -> list[float]:
    return [float(found.group()) for found in _NUMBER.finditer(form_of(workload.program).text)]


def _comparable(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether two argument lists differ in numbers only."""
    return len(one) == len(other) and bool(one) and all(map(_both_numbers_or_equal, one, other))


def _both_numbers_or_equal(one: Any, other: Any) -> bool:
    return one == other or all(isinstance(v, int | float) for v in (one, other))


def _distance(one: Sequence[Any], other: Sequence[Any]) -> float:
    """How far sizes are apart: the sum over them of the logarithms of their ratios."""
    pairs: Iterable[tuple[Any, Any]] = zip(one, other, strict=False)
    return sum(_apart(a, b) for a, b in pairs) + 64.0 * abs(len(one) - len(other))


def _apart(one: Any, other: Any) -> float:
    if one == other:
        return 0.0
    if all(isinstance(v, int | float) and v > 0 for v in (one, other)):
        return abs(math.log2(one) - math.log2(other))
    return 64.0
