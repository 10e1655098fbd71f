"""Tuning without a template in auto_scheduler's words: workloads, search tasks, tuning options."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, Self, TypeVar, overload
from weakref import WeakValueDictionary

from tensorlang import topi
from tensorlang.autotune.apply import apply_best, records_of
from tensorlang.autotune.arguments import spelt
from tensorlang.autotune.dag import ComputeDAG
from tensorlang.autotune.hardware import HardwareParams
from tensorlang.autotune.machines import LOCAL, Machines
from tensorlang.autotune.measuring.harness import Harness
from tensorlang.autotune.records.store import log_path
from tensorlang.autotune.result import Progress, Result
from tensorlang.autotune.runs import run
from tensorlang.autotune.search.sketch_search import SketchSearch
from tensorlang.autotune.task import Task, arguments_of, given_inputs, task_of
from tensorlang.autotune.tuners.measure import Builder, MeasureOption, Runner, measure_option
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError, shown
from tensorlang.location import caller
from tensorlang.schedule import Schedule
from tensorlang.schedule.names import nearest
from tensorlang.target.spec import Target
from tensorlang.te.operation import Tensor

Workload = Callable[..., Sequence[Tensor]]
W = TypeVar("W", bound=Workload)

_workloads: dict[str, Workload] = {}
_known: WeakValueDictionary[str, SearchTask] = WeakValueDictionary()
"""The tasks of this process, by the keys of their workloads."""


class Policy(Protocol):
    """Makes the search of a task."""

    def search(self) -> SketchSearch: ...


def known_task(key: str) -> SearchTask | None:
    """The task of a workload, if this process has made it and holds it."""
    return _known.get(key)


@overload
def register_workload(func_name: W, f: None = None, override: bool = False) -> W: ...


@overload
def register_workload(func_name: str, f: None = None, override: bool = False) -> Callable[[W], W]: ...


@overload
def register_workload(func_name: str, f: W, override: bool = False) -> W: ...


def register_workload(func_name: str | Workload, f: Workload | None = None, override: bool = False) -> Any:
    """Register a function that returns its tensors, inputs first, as a workload: `@autotune.register_workload`.

    >>> from tensorlang import autotune, te
    >>> @autotune.register_workload
    ... def doubled(n):
    ...     x = te.placeholder((n,), name="x")
    ...     return [x, te.compute((n,), lambda i: x[i] * 2, name="y")]
    >>> autotune.SearchTask(func=doubled, args=(64,), target="llvm").workload_key
    '66f6a07254d8d071'
    """
    if isinstance(func_name, str) and f is None:
        return lambda function: register_workload(func_name, function, override)
    name = func_name if isinstance(func_name, str) else getattr(func_name, "__name__", repr(func_name))
    function = f if f is not None else func_name
    if not callable(function):
        raise DefinitionError(f"a workload is a function that returns its tensors, got {shown(function)}", caller())
    if not override and not _is_the_same(_workloads.get(name, function), function):
        raise DefinitionError(f"there is a workload {name!r} already; write override=True to replace it", caller())
    _workloads[name] = function
    return function


def find_workload(name: str) -> Workload | None:
    """The workload registered under a name, if there is one."""
    return _workloads.get(name)


def _is_the_same(one: Workload, other: Workload) -> bool:
    """Whether two functions are one, or one that was loaded again from its file."""
    places = [(f.__code__.co_filename, f.__code__.co_firstlineno) for f in (one, other) if hasattr(f, "__code__")]
    return one is other or (len(places) == 2 and places[0] == places[1])


@dataclass(frozen=True, slots=True)
class RecordToFile:
    """Append every measurement to a log; tuning goes on where the log ends."""

    filename: str | os.PathLike[str] = "auto_scheduler_tuning.json"


@dataclass(frozen=True, slots=True)
class TuningOptions:
    """How much to tune, and who is told.

    `num_measure_trials` counts trials that a log (RecordToFile) holds already; `seconds` bounds the time instead, or
    too. `early_stopping`: stop after so many trials without a better one. `num_measures_per_round`: trials that
    TaskScheduler gives a task at a time. `verbose` 0 says nothing. `measure_callbacks`: RecordToFile, or functions of
    a Progress. `builder`, `runner`: as for `autotune.measure_option`; `dask://host:port` tunes on a cluster, where the
    rounds of TaskScheduler grow with the number of workers.
    """

    num_measure_trials: int = 64
    early_stopping: int | None = None
    num_measures_per_round: int = 16
    verbose: int = 1
    builder: Builder = None
    runner: Runner = LOCAL
    measure_callbacks: Sequence[RecordToFile | Callable[[Progress], None]] = ()
    seconds: float | None = None

    @property
    def measuring(self) -> MeasureOption:
        """Where candidates are measured, and within which limits."""
        return measure_option(self.builder, self.runner)

    @property
    def logs(self) -> list[RecordToFile]:
        """The logs among the callbacks."""
        return [c for c in self.measure_callbacks if isinstance(c, RecordToFile)]

    @property
    def functions(self) -> list[Callable[[Progress], None]]:
        """The functions among the callbacks."""
        return [c for c in self.measure_callbacks if not isinstance(c, RecordToFile)]


class SearchTask:
    """A workload with arguments, to tune for a target. `task` is what `autotune.tune` takes."""

    def __init__(
        self,
        func: str | Workload,
        args: Sequence[Any] = (),
        target: str | Target | None = None,
        target_host: str | Target | None = None,
        threads: int | None = None,
        *,
        task_inputs: Mapping[str, Any] | None = None,
        task_inputs_overwrite: bool = False,
        task_inputs_save_to_file: bool = False,
        hardware_params: HardwareParams | None = None,
        desc: str = "",
    ) -> None:
        """Call a workload (registered, by name, or any function that returns tensors) for its tensors.

        `task_inputs`: arrays that candidates are measured on, for inputs that random numbers would not do for, as where
        the rows of a sparse matrix begin. They are known by the name of the input, which theirs ends with, or else by
        shape and dtype; DefinitionError for one that is no input. `hardware_params` gives the threads, by its cores.
        `target_host` and the rest are accepted for auto_scheduler's sake.
        """
        del task_inputs_overwrite, task_inputs_save_to_file
        if not isinstance(func, str) and not callable(func):
            raise DefinitionError(f"func is a workload, or the name of one, got {shown(func)}", caller())
        if isinstance(func, str) and func not in _workloads:
            raise DefinitionError(f"no workload {func!r}; {nearest(func, _workloads)}", caller())
        function = _workloads[func] if isinstance(func, str) else func
        name = func if isinstance(func, str) else getattr(func, "__name__", "program")
        if name in topi.OPERATORS:  # operators of the library have their own references, and are made again by name
            name = f"workload {name}"
        threads = hardware_params.num_cores if threads is None and hardware_params is not None else threads
        task = task_of(function(*args), name, spelt(args), target, threads)
        self.task: Task = replace(task, given=given_inputs(task, task_inputs or {}))
        self.desc, self._hardware = desc, hardware_params
        _known[self.workload_key] = self

    @classmethod
    def of(cls, task: Task) -> Self:
        """The search task of a task that is there already."""
        made = cls.__new__(cls)
        made.task, made.desc, made._hardware = task, "", None
        return made

    def __repr__(self) -> str:
        return f"SearchTask({self.task})"

    @property
    def workload_key(self) -> str:
        """The hash of the program's canonical text."""
        return self.task.workload.key

    @property
    def compute_dag(self) -> ComputeDAG:
        """The program, to print, and to make states of; `task.program` is the program itself."""
        return ComputeDAG(self.task)

    @property
    def target(self) -> Target:
        return self.task.target

    @property
    def task_inputs(self) -> dict[str, Any]:
        """The arrays that candidates are measured on, by the names of their inputs."""
        return dict(self.task.given)

    @property
    def hardware_params(self) -> HardwareParams:
        """What the target is, in auto_scheduler's words."""
        return self._hardware or HardwareParams.of(self.target)

    def recorded(self, options: TuningOptions) -> int:
        """How many trials of this task the log of these options holds."""
        return len(records_of(log_path(options.logs[0].filename), self.task)) if options.logs else 0

    def move_to(self, machines: Machines) -> None:
        """Be a task for these machines: one for this machine becomes one for theirs. TargetError when they cannot."""
        self.task = machines.fit(self.task)

    def search(self, seed: int = 0) -> SketchSearch:
        """A search of this task, which `tune` may go on with."""
        return SketchSearch(self.task, seed)

    def tune(
        self,
        tuning_options: TuningOptions,
        search_policy: Policy | None = None,
        adaptive_training: bool = False,
        *,
        seed: int = 0,
        measurer: Harness | None = None,
        search: SketchSearch | None = None,
    ) -> Result:
        """Tune the task. Every measurement goes to the logs among the callbacks as it is made.

        With a cluster for a runner, a task for this machine becomes one for the workers', and stays so.
        `measurer`: one of this task that is open, and stays so. `search`: one that goes on with more trials.
        `search_policy`: SketchPolicy, with rules of one's own; `adaptive_training` is accepted for its sake.
        """
        del adaptive_training
        options = tuning_options
        budget = options.num_measure_trials, options.seconds, options.early_stopping
        callbacks = [*options.functions, *([print_progress(options)] if options.verbose else [])]
        search = search or (self.search(seed) if search_policy is None else search_policy.search())
        where = options.measuring if measurer is None else measurer
        try:
            return run(search, *budget, [log.filename for log in options.logs], callbacks, where)
        finally:
            self.task = search.task

    def apply_best(self, log_file: str | os.PathLike[str] | None) -> tuple[Schedule, list[Tensor]]:
        """Return the best schedule of a log (None: the default store), proven legal again, and the tensors.

        RecordError when it has none of this task; it names the nearest.
        """
        return apply_best(log_file, self.task), arguments_of(self.task.tensors)

    def print_best(self, log_file: str | os.PathLike[str] | None) -> str:
        """Return the best schedule of a log, proven legal again, as Python text."""
        return str(apply_best(log_file, self.task))


def auto_schedule(
    task: SearchTask, search_policy: Policy | None = None, tuning_options: TuningOptions | None = None
) -> tuple[Schedule, list[Tensor]]:
    """Tune a task, and return the best schedule that was measured, and the tensors, as auto_scheduler did to 0.7.

    RecordError where nothing worked.

        >>> from tensorlang import autotune, te
        >>> def doubled(n):
        ...     x = te.placeholder((n,), name="x")
        ...     return [x, te.compute((n,), lambda i: x[i] * 2, name="y")]
        >>> options = autotune.TuningOptions(num_measure_trials=1, verbose=0)
        >>> s, args = autotune.auto_schedule(autotune.SearchTask(doubled, (64,), "llvm"), tuning_options=options)
        >>> [t.name for t in args]
        ['x', 'y']
    """
    result = task.tune(tuning_options or TuningOptions(), search_policy)
    return apply_best(result.records, task.task), arguments_of(task.task.tensors)


def print_progress(options: TuningOptions) -> Callable[[Progress], None]:
    """A line on standard error for each new best; for every trial where `verbose` is 2."""

    def show(progress: Progress) -> None:
        if options.verbose > 1 or progress.record is progress.best:
            now, best = progress.record.gflops, 0.0 if progress.best is None else progress.best.gflops
            state = "" if progress.record.ok else f" ({progress.record.status})"
            print(
                f"{progress.record.workload} trial {progress.trials}/{options.num_measure_trials}: "
                f"{now:.1f}{state}, best {best:.1f} GFLOP/s, {progress.elapsed:.0f} s",
                file=sys.stderr,
            )

    return show
