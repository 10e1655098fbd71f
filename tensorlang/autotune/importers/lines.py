"""Lines of TVM's logs: Ansor's v0.2 to v0.6 and AutoTVM's 0.2, read by their shape.

An Ansor line is `{"i": [[key, target, hardware, ...], [[], steps]], "r": [costs, error, seconds, time], "v": "v0.6"}`;
later versions only add to the first list. An AutoTVM line is `{"input": [target, template, args, kwargs], "config":
{"index", "entity"}, "result": [costs, error, seconds, time], "version": 0.2, "tvm_version"}`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tensorlang.autotune.records.regular import MOST_LINE, nests_deeply
from tensorlang.dataclass import dataclass
from tensorlang.errors import RecordError, shown

ANSOR_VERSIONS = ("v0.2", "v0.3", "v0.4", "v0.5", "v0.6")
AUTOTVM_VERSION = 0.2
HASH = re.compile(r"[0-9a-f]{32}")

_ERRORS = {
    1: "the schedule could not be made",
    2: "it did not compile",
    3: "it did not compile for the device",
    4: "it failed while it ran",
    5: "it gave a wrong answer",
    6: "compiling took too long",
    7: "running took too long",
}
"""Numbers of failures, which both tuners share -> what happened."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a line says whichever tuner wrote it: who, of which program, for which target, how fast and when."""

    tuner: str
    program: str
    args: tuple[Any, ...]
    target: str
    cores: int | None
    seconds: tuple[float, ...]
    time: str
    versions: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AnsorLine:
    """A measurement of Ansor: transform steps on the program of a workload function."""

    measured: Measured
    steps: Sequence[Any]


@dataclass(frozen=True, slots=True)
class AutotvmLine:
    """A measurement of AutoTVM: a configuration of a template."""

    measured: Measured
    config: Mapping[str, Any]


def parse_line(text: str) -> AnsorLine | AutotvmLine:
    """Read one line; RecordError says why it is none that can be imported."""
    if text.startswith("#"):
        raise RecordError("it is a comment")
    if len(text) > MOST_LINE:
        raise RecordError(f"it has {len(text):,} signs, and a line has at most {MOST_LINE:,}")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise RecordError("it is torn, or no JSON at all") from None
    if nests_deeply(data):
        raise RecordError("it has lists in lists, deeper than any log")
    match data:
        case {"i": [[*task], [_, [*steps]]], "r": [*result], "v": str(version)}:
            return AnsorLine(_ansor(task, result, version), steps)
        case {"input": [_, str(name), _, {**named}, *_]} if named:
            raise RecordError(f"it calls {name!r} with arguments by name, which AutoTVM did not write: {shown(named)}")
        case {"input": [str(target), str(name), [*args], *_], "config": {}, "result": [*result]}:
            return AutotvmLine(_autotvm(target, name, args, result, data), data["config"])
        case {"i": _, "r": _, "v": str(version)} if version in ANSOR_VERSIONS:
            raise RecordError(f"it has version {version} of Ansor, and not the fields of that")
        case {"i": _, "r": _, "v": version}:
            raise RecordError(f"it has version {shown(version)} of AutoTVM or Ansor; {_KNOWN}")
    raise RecordError(f"it is no line of AutoTVM or Ansor; {_KNOWN}")


_KNOWN = f"{ANSOR_VERSIONS[0]} to {ANSOR_VERSIONS[-1]} of Ansor and {AUTOTVM_VERSION} of AutoTVM are known"


def _ansor(task: list[Any], result: list[Any], version: str) -> Measured:
    if version not in ANSOR_VERSIONS:
        raise RecordError(f"it has version {shown(version)} of Ansor; {_KNOWN}")
    match task:
        case [str(key), str(target), [int(cores), *_], *_]:
            pass
        case [str(key), str(target), *_]:
            cores = 0
        case _:
            raise RecordError(f"a task of Ansor is [key, target, ...], got {shown(task)}")
    name, args = _workload(key)
    seconds, time = _times(result)
    versions = {"auto_scheduler": version}
    return Measured(f"ansor {version}", name, args, target, cores or None, seconds, time, versions)


def _workload(key: str) -> tuple[str, tuple[Any, ...]]:
    """The function and its arguments that a workload key names."""
    try:
        named = json.loads(key)
    except (ValueError, RecursionError):
        named = key
    if nests_deeply(named):
        raise RecordError("its workload key has lists in lists, deeper than any")
    match named:
        case [str(name), *args]:
            return name, tuple(args)
        case str(name):
            return name, ()
    raise RecordError(f"a workload key is a function and its arguments, got {shown(key)}")


def _autotvm(target: str, name: str, args: list[Any], result: list[Any], rest: Mapping[str, Any]) -> Measured:
    version = rest.get("version")
    if version != AUTOTVM_VERSION:
        raise RecordError(f"it has version {shown(version)} of AutoTVM; {_KNOWN}")
    seconds, time = _times(result)
    versions = {"autotvm": str(version), "tvm": str(rest.get("tvm_version", ""))}
    return Measured(f"autotvm {version}", name, _tuples(args), target, None, seconds, time, versions)


def _tuples(data: Any) -> Any:
    """Lists of JSON as the tuples that they were."""
    return tuple(map(_tuples, data)) if isinstance(data, list) else data


def _times(result: list[Any]) -> tuple[tuple[float, ...], str]:
    """The seconds of every repeat, and when they were taken."""
    match result:
        case [_, int(error), *_] if error != 0:
            raise RecordError(f"its measurement failed: {_ERRORS.get(error, f'error {error}')}")
        case [[int() | float(), *_] as costs, int(), _, int() | float() as stamp, *_]:
            pass
        case _:
            raise RecordError(f"a result is [costs, error, seconds, time], got {shown(result)}")
    if not all(isinstance(cost, int | float) and 0 < cost <= sys.float_info.max for cost in costs):
        raise RecordError(f"the seconds of its repeats are no times: {shown(costs)}")
    try:
        time = datetime.fromtimestamp(stamp, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        raise RecordError(f"it was measured at no time: {stamp}") from None
    return tuple(map(float, costs)), time
