"""TVM's logs among the formats that `tensorlang log import` knows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tensorlang.autotune.importers.importing import import_log
from tensorlang.autotune.records.formats import Format, register_format
from tensorlang.autotune.records.log import Log, parse_line
from tensorlang.errors import RecordError

_LOOKED_AT = 64  # lines by which a log is told


def _has(*keys: str) -> Callable[[bytes], bool]:
    """Tell a log by the keys of a line of it."""

    def is_it(head: bytes) -> bool:
        lines = [line for line in head.split(b"\n") if line.strip()][:_LOOKED_AT]
        return any(data is not None and set(keys) <= set(data) for data in map(parse_line, lines))

    return is_it


def _read(path: Path) -> Log:
    """Read a log whose programs are registered, or ship with tensorlang."""
    imported = import_log(path)
    if imported.refused and not imported.lines:
        raise RecordError(f"nothing of {path} can be imported; {imported.log.reason}")
    return imported.log


NAMES = ("ansor", "autotvm")
register_format(Format("ansor", "logs of TVM's auto_scheduler, v0.2 to v0.6", _has("i", "r", "v"), _read))
register_format(Format("autotvm", "logs of TVM's AutoTVM, 0.2", _has("input", "config", "result"), _read))
