"""Logs of TVM's tuners as records of ours: every line becomes a proven schedule, or is refused with the reason."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from tensorlang.autotune.arguments import spelt, with_tensors
from tensorlang.autotune.importers.ansor_steps import replay_steps
from tensorlang.autotune.importers.lines import AnsorLine, AutotvmLine, Measured, parse_line
from tensorlang.autotune.importers.programs import Program, Source, source_of, template_source, workload_source
from tensorlang.autotune.importers.targets import target_of
from tensorlang.autotune.records.log import Log, LogPath
from tensorlang.autotune.records.record import Status, TuningRecord, Verdict
from tensorlang.autotune.records.regular import read_regular
from tensorlang.autotune.task import Task, task_of
from tensorlang.autotune.templates.config import ConfigEntity
from tensorlang.autotune.templates.entity import Entity, OtherOptionEntity, SplitEntity
from tensorlang.autotune.templates.space import ConfigSpace
from tensorlang.autotune.templates.task import TemplateTask, collect
from tensorlang.dataclass import dataclass
from tensorlang.errors import InternalError, RecordError, TensorlangError, shown
from tensorlang.limits import for_a_record
from tensorlang.schedule import Schedule
from tensorlang.schedule.recorded import reason
from tensorlang.target import parse
from tensorlang.target.spec import Target


@dataclass(frozen=True, slots=True)
class Refusal:
    """A line that was not imported, by its number, and why."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class ImportedLine:
    """A line that became a record, and the program that it schedules."""

    line: int
    record: TuningRecord
    task: Task


@dataclass(frozen=True, slots=True)
class Imported:
    """What came of a log. Every line that is not blank is in `lines` or in `refused`."""

    path: Path
    lines: tuple[ImportedLine, ...]
    refused: tuple[Refusal, ...]

    @property
    def records(self) -> tuple[TuningRecord, ...]:
        """The records, in the order of the log."""
        return tuple(line.record for line in self.lines)

    @property
    def log(self) -> Log:
        """The same as a log that was read."""
        first = f"line {self.refused[0].line}: {self.refused[0].reason}" if self.refused else ""
        return Log(self.path, self.records, 0, len(self.refused), first)


def import_log(
    path: LogPath, programs: Mapping[str, Program] | None = None, target: str | Target | None = None
) -> Imported:
    """Read a log of AutoTVM (0.2) or Ansor (v0.2 to v0.6).

    `programs`: by the names that the log has, functions that return the tensors of a program as they did in TVM (of
    Ansor), or templates (of AutoTVM); or `file.py:function`. Registered workloads and templates, and those of TVM that
    tensorlang ships, need not be named. `target` replaces that of the log. Each schedule is proven legal; records hold
    our trace and the times of the log, with nothing known of the machine that took them but its target. RecordError
    when the file cannot be read; a line that cannot be imported is refused alone.

        >>> from pathlib import Path
        >>> from tempfile import mkdtemp
        >>> from tensorlang import autotune
        >>> log = Path(mkdtemp()) / "autotvm.log"
        >>> characters = log.write_text('{"version": 0.2}')
        >>> [str(refusal.line) for refusal in autotune.import_log(log).refused]
        ['1']
    """
    reader = _Reader(
        {name: source_of(name, program) for name, program in (programs or {}).items()},
        None if target is None else parse(target),
    )
    lines: list[ImportedLine] = []
    refused: list[Refusal] = []
    for number, text in _numbered(Path(path)):
        try:
            with for_a_record(0):
                lines.append(ImportedLine(number, *reader.read(text)))
        except InternalError:
            raise
        except TensorlangError as error:
            refused.append(Refusal(number, str(error)))
        except Exception as error:
            refused.append(Refusal(number, f"it cannot be imported: {reason(error)}"))
    return Imported(Path(path), tuple(lines), tuple(refused))


def _numbered(path: Path) -> list[tuple[int, str]]:
    """The lines of a file that are not blank, with their numbers."""
    try:
        content = read_regular(path).decode(errors="replace")
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
    return [(number, text.strip()) for number, text in enumerate(content.split("\n"), 1) if text.strip()]


@dataclass(slots=True)
class _Reader:
    """Turns lines into records; programs and templates that lines share are made once."""

    known: Mapping[str, Source]
    target: Target | None
    tasks: dict[tuple[Any, ...], Task] = field(default_factory=dict)
    templates: dict[tuple[Any, ...], TemplateTask] = field(default_factory=dict)

    def read(self, text: str) -> tuple[TuningRecord, Task]:
        """The record of a line; TensorlangError says why there is none."""
        match parse_line(text):
            case AnsorLine(measured, steps):
                task = self._task(measured)
                return _record(measured, task, replay_steps(task.tensors, steps), measured.tuner, {}), task
            case AutotvmLine(measured, config):
                template = self._template(measured)
                entity = _offered(template.config_space, ConfigEntity.from_json_dict(config))
                with _of_the_user(f"{template.name} with {entity}"):
                    schedule, _ = template.instantiate(entity)
                digits = _digits(template.config_space, entity)
                sketch = measured.tuner if digits is None else template.sketch
                made = _record(measured, template.task, schedule, sketch, digits or {})
                return replace(made, settings=entity.settings()), template.task

    def _task(self, measured: Measured) -> Task:
        """The program of an Ansor line."""
        key = _key(measured)
        if key not in self.tasks:
            source = workload_source(measured.program, self.known)
            with _of_the_user(f"{source.name}{measured.args}"):
                tensors = source.function(*with_tensors(source.function, measured.args))
            self.tasks[key] = task_of(tensors, source.name, spelt(measured.args), self._target(measured))
        return self.tasks[key]

    def _template(self, measured: Measured) -> TemplateTask:
        """The template of an AutoTVM line, with its arguments."""
        key = _key(measured)
        if key not in self.templates:
            name, template = template_source(measured.program, self.known)
            with _of_the_user(f"template {name}{measured.args}"):
                self.templates[key] = collect(template, measured.args, self._target(measured), name=name)
        return self.templates[key]

    def _target(self, measured: Measured) -> Target:
        return target_of(measured.target, measured.cores) if self.target is None else self.target


def _key(measured: Measured) -> tuple[Any, ...]:
    return measured.program, repr(measured.args), measured.target, measured.cores


@contextmanager
def _of_the_user(what: str) -> Iterator[None]:
    """What functions and templates of the user raise, as the reason to refuse a line."""
    try:
        yield
    except TensorlangError:
        raise
    except Exception as error:
        raise RecordError(f"{what} failed: {type(error).__name__}: {error}") from error


def _offered(space: ConfigSpace, config: ConfigEntity) -> ConfigEntity:
    """A configuration whose plain values are candidates of the template: others may be anything; RecordError for those.

    Sizes, orders and words for axes that a space does not list are as legal as the schedule that they make.
    """
    for name, knob in space.space_map.items():
        value = config.entities.get(name)
        if isinstance(value, OtherOptionEntity) and _spelt(value) not in map(_spelt, knob.candidates):
            raise RecordError(f"its knob {name!r} has a value that the template does not offer, {shown(value.val)}")
    return config


def _spelt(entity: Entity) -> str:
    return json.dumps(entity.to_json(), default=repr)


def _digits(space: ConfigSpace, config: ConfigEntity) -> dict[str, int] | None:
    """The candidate of every knob that a configuration is; None when the space has no such point."""
    found = {}
    for name, knob in space.space_map.items():
        entity = _open(config[name], knob.extent)
        if entity not in knob.candidates:
            return None
        found[name] = knob.candidates.index(entity)
    return found


def _open(entity: Entity, extent: int) -> Entity:
    """A split as spaces write it: what is left for the outermost part is -1."""
    if isinstance(entity, SplitEntity) and math.prod(entity.size) == extent:
        return SplitEntity([-1, *entity.size[1:]])
    return entity


def _record(
    measured: Measured, task: Task, schedule: Schedule, sketch: str, decisions: Mapping[str, int]
) -> TuningRecord:
    trace = schedule.trace
    return TuningRecord(
        workload=task.workload,
        target=task.target.to_json(),
        threads=task.threads,
        sketch=sketch,
        trace=trace.to_json(),
        trace_key=trace.key,
        decisions=decisions,
        status=Status.OK,
        seconds=measured.seconds,
        versions=dict(measured.versions),
        time=measured.time,
        verdict=Verdict(True),
        conditions={"imported": measured.tuner, "target": measured.target},
    )
