"""A template with arguments and a target: its program to measure, its space, and what one point of it gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tensorlang.autotune.arguments import meant, spelt
from tensorlang.autotune.files import load_function
from tensorlang.autotune.records.record import TuningRecord, WorkloadId
from tensorlang.autotune.task import Task, task_of
from tensorlang.autotune.templates.config import ConfigEntity
from tensorlang.autotune.templates.registry import SHIPPED, Scheduled, TemplateFunction, find_template
from tensorlang.autotune.templates.space import ConfigSpace
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError, ScheduleError
from tensorlang.schedule import Trace
from tensorlang.target import parse
from tensorlang.target.spec import Target

ATTEMPTS = 64
FEW_ATTEMPTS = 8


@dataclass(frozen=True, repr=False)
class TemplateTask:
    """What is tuned. `config_space` has every configuration; `task` is the program, as the tuner measures it."""

    template: TemplateFunction
    args: tuple[Any, ...]
    config_space: ConfigSpace
    task: Task

    def __repr__(self) -> str:
        return f"TemplateTask({self.name!r}, args={self.args}, {len(self.config_space)} configurations, {self.task})"

    @property
    def name(self) -> str:
        """The template's name."""
        return self.template.name

    @property
    def target(self) -> Target:
        return self.task.target

    @property
    def workload(self) -> WorkloadId:
        """The program, as records name it."""
        return self.task.workload

    @property
    def flop(self) -> float:
        """Operations of one run: what `add_flop` was told, else counted."""
        return self.task.workload.flops

    @property
    def sketch(self) -> str:
        """What records of this space call it."""
        return f"{self.name} {self.config_space.key}"

    def instantiate(self, config: ConfigEntity) -> Scheduled:
        """Run the template on a configuration: the schedule, proven legal, and the tensors.

        Raises ScheduleError for a configuration that is not legal, or that the template refuses.
        """
        with self.target:
            opened, (s, tensors) = self.template.run(config.opened, self.args)
        asked = f"{self.name} with {config}"
        if opened.errors:
            raise ScheduleError(asked, f"the template refuses: {opened.errors[0]}")
        if s.original.text != self.task.program.text:
            raise ScheduleError(asked, "the program differs from that of other configurations; knobs are for schedules")
        return s, tensors

    def trace(self, config: ConfigEntity) -> Trace:
        """The steps of a configuration: they replay on the program without the template."""
        return self.instantiate(config)[0].trace

    def config_of(self, record: TuningRecord) -> ConfigEntity | None:
        """The configuration that a record measured; None when it is of another space or another program."""
        space = self.config_space
        if record.sketch != self.sketch or record.workload.key not in self.task.program.keys:
            return None
        digits = [record.decisions.get(name, -1) for name in space.space_map]
        if any(not 0 <= digit < base for digit, base in zip(digits, space.shape, strict=True)):
            return None
        return space.at(space.number(digits))


def create(
    task_name: str | TemplateFunction,
    args: Sequence[Any] = (),
    target: str | Target | None = None,
    target_host: str | Target | None = None,
    threads: int | None = None,
) -> TemplateTask:
    """Make a task of a template: `autotune.task.create("name", args=(512, 512), target="llvm")`.

    The template runs once, to collect its knobs; `target_host` is accepted for AutoTVM's sake. Raises DefinitionError
    for an unknown name and for knobs without candidates, ScheduleError when no configuration tried is legal.
    """
    function = task_name if isinstance(task_name, TemplateFunction) else find_template(task_name)
    return collect(function, tuple(args), target, threads)


def template_task(
    name: str, args: Sequence[Any], target: str | Target | None = None, threads: int | None = None
) -> TemplateTask | None:
    """The task of a template that tensorlang has, or of `path/to/file.py:function` where that is one; else None.

    >>> from tensorlang import autotune
    >>> data, weight = ("TENSOR", (8, 32), "float32"), ("TENSOR", (24, 32), "float32")
    >>> len(autotune.template_task("dense_nopack.x86", (data, weight), "llvm").config_space)
    192
    """
    if name in SHIPPED:
        return collect(find_template(name), meant(args), target, threads)
    if ":" not in name:
        return None
    function = getattr(load_function(name), "__wrapped__", None)
    return collect(function, meant(args), target, threads, name) if isinstance(function, TemplateFunction) else None


def collect(
    function: TemplateFunction,
    args: tuple[Any, ...],
    target: str | Target | None = None,
    threads: int | None = None,
    name: str = "",
) -> TemplateTask:
    """Run a template to collect its knobs and its program. `name` of the workload in records (the template's)."""
    machine = parse(target)
    with machine:
        space, (s, tensors) = _first_legal(function, args)
    task = task_of(tensors, name or function.name, spelt(args), machine, threads)
    if s.original.text != task.program.text:
        raise DefinitionError(f"template {function.name!r} returns a schedule of another program than its tensors")
    if space.flop:
        task = replace(task, workload=replace(task.workload, flops=space.flop))
    return TemplateTask(function, args, space, task)


def _drawn_space(attempt: int) -> ConfigSpace:
    """A space to collect: the first attempt with the first candidate of each knob, later ones with others."""
    rng = np.random.default_rng(attempt)
    return ConfigSpace(lambda knob: int(rng.integers(len(knob))) if attempt else 0)


def _first_legal(function: TemplateFunction, args: tuple[Any, ...]) -> tuple[ConfigSpace, Scheduled]:
    """The space and a schedule, of the first configuration or else of the first legal one drawn."""
    refused: list[ScheduleError] = []
    while len(refused) < ATTEMPTS:
        try:
            return function.run(partial(_drawn_space, len(refused)), args)
        except ScheduleError as error:
            refused.append(error)
        if len(refused) == FEW_ATTEMPTS and len({error.asked for error in refused}) == 1:
            break  # no knob has a say in it
    why = f"none of {len(refused)} configurations tried is legal; the first was refused:\n{refused[0]}"
    raise ScheduleError(f"{function.name}{args}", why, suggested=refused[0].advice) from refused[0]
