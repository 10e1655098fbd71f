"""Lines of AutoTVM's logs (0.2), and of tensorlang's own, one by one: what was measured, and how it ended."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tensorlang.autotune.arguments import TENSOR, meant
from tensorlang.autotune.records.record import TuningRecord
from tensorlang.autotune.templates.config import ConfigEntity
from tensorlang.autotune.templates.task import create
from tensorlang.autotune.tuners.measure import MeasureErrorNo, MeasureInput, MeasureResult, measured
from tensorlang.errors import DefinitionError, RecordError, TensorlangError, shown
from tensorlang.ir.expr import Const
from tensorlang.target.spec import Target
from tensorlang.te.operation import Tensor

AUTOTVM_LOG_VERSION = 0.2


def encode(inp: MeasureInput, result: MeasureResult, protocol: str = "json") -> str:
    """Return a measurement as a line of AutoTVM's logs; DefinitionError for another protocol than json.

    tensorlang's own logs hold more (`autotune.LogWriter`): the steps of the schedule, and how sure the times are.
    """
    if protocol != "json":
        raise DefinitionError(f"record.encode writes json, got {shown(protocol)}")
    data = {
        "input": [str(inp.target), inp.task.name, _plain(inp.task.args), {}],
        "config": inp.config.to_json_dict(),
        "result": [list(result.costs), int(result.error_no), result.all_cost, result.timestamp],
        "version": AUTOTVM_LOG_VERSION,
    }
    return json.dumps(data)


def decode(row: str, protocol: str = "json") -> tuple[MeasureInput, MeasureResult]:
    """Return the measurement of a line of a log, AutoTVM's (0.2) or our own, of a template that is known here.

    RecordError for anything else, DefinitionError for another protocol than json.
    """
    if protocol != "json":
        raise DefinitionError(f"record.decode reads json, got {shown(protocol)}")
    try:
        data = json.loads(row)
        if "schema" in data:
            return _own(TuningRecord.from_json(data))
        target, name, args, _ = data["input"]
        costs, number, all_cost, timestamp = data["result"]
        if data["version"] != AUTOTVM_LOG_VERSION:
            raise RecordError(f"a line of AutoTVM's logs is of version {AUTOTVM_LOG_VERSION}, got {data['version']!r}")
        task = create(str(name), _meant(args), str(target))
        inp = MeasureInput(task.target, task, ConfigEntity.from_json_dict(data["config"]))
        return inp, MeasureResult(tuple(map(float, costs)), MeasureErrorNo(number), float(all_cost), float(timestamp))
    except TensorlangError as error:
        raise error if isinstance(error, RecordError) else RecordError(str(error)) from None
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"this is no line of AutoTVM's logs: {shown(row)} ({error})") from None


def load_from_file(filename: str | Path) -> Iterator[tuple[MeasureInput, MeasureResult]]:
    """Yield the measurements of a log, line by line; empty lines and comments are skipped."""
    with Path(filename).open(encoding="utf-8") as lines:
        for line in lines:
            if line.strip() and not line.startswith("#"):
                yield decode(line)


def pick_best(in_file: str | Path, out_file: str | Path) -> None:
    """Write the best measurement of every workload of a log to another one, as its lines are."""
    best: dict[tuple[str, str], tuple[float, str]] = {}
    with Path(in_file).open(encoding="utf-8") as lines:
        for line in lines:
            if line.strip() and not line.startswith("#"):
                inp, result = decode(line)
                key = str(inp.target), inp.task.workload.key
                if result.ok and result.seconds < best.get(key, (math.inf, ""))[0]:
                    best[key] = result.seconds, line
    Path(out_file).write_text("".join(line for _, line in best.values()), encoding="utf-8")


def _own(record: TuningRecord) -> tuple[MeasureInput, MeasureResult]:
    """The measurement of a record; RecordError where its template, or its configuration, is another one now."""
    task = create(
        record.workload.name, meant(record.workload.args), Target.from_json(record.target), None, record.threads
    )
    config = task.config_of(record)
    if config is None:
        raise RecordError(f"template {task.name!r} has no such configuration any more: {record.settings}")
    return MeasureInput(task.target, task, config), measured(record)


def _plain(value: Any) -> Any:
    """An argument of a template as JSON has it."""
    match value:
        case Tensor():
            return [TENSOR, [int(n.value) if isinstance(n, Const) else str(n) for n in value.shape], value.dtype]
        case list() | tuple():
            return [_plain(part) for part in value]
        case Const():
            return value.value
    return value


def _meant(value: Any) -> Any:
    """An argument from JSON: lists are tuples."""
    return tuple(map(_meant, value)) if isinstance(value, list) else value
