"""Builders and runners of one's own, in AutoTVM's and auto_scheduler's words, as machines that a tuner measures on."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from types import TracebackType
from typing import Any, Self

from tensorlang.autotune.apply import fresh_schedule
from tensorlang.autotune.dag import State
from tensorlang.autotune.machines import ThisMachine
from tensorlang.autotune.measuring.harness import BATCH, Limits, Measured, Measurement, record_of
from tensorlang.autotune.measuring.jobs import Comparison
from tensorlang.autotune.records.record import Status
from tensorlang.autotune.task import Task
from tensorlang.autotune.tuners.measured import (
    BuildResult,
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    measured,
    status_of,
)
from tensorlang.dataclass import dataclass
from tensorlang.driver import lower
from tensorlang.errors import DefinitionError, ScheduleError, TensorlangError, shown
from tensorlang.names import lookup
from tensorlang.schedule.recorded import replay_recorded
from tensorlang.target.rates import Rates
from tensorlang.target.spec import Target


def built(inp: MeasureInput) -> BuildResult:
    """The result of lowering a schedule."""
    begun = time.monotonic()
    task = inp.program
    try:
        schedule = (
            replay_recorded(fresh_schedule(task), inp.trace.to_json()) if inp.state is None else inp.state.schedule
        )
        lower(schedule, list(task.tensors), target=task.target)
        number, text = MeasureErrorNo.NO_ERROR, ""
    except TensorlangError as error:
        number, text = MeasureErrorNo.COMPILE_HOST, str(error)
    return BuildResult("", tuple(task.tensors), int(number), text, time.monotonic() - begun)


def run_here(inputs: Sequence[MeasureInput], builds: Sequence[BuildResult], limits: Limits) -> list[MeasureResult]:
    """What schedules come to in processes of this machine; what could not be built is not run."""
    results = [
        MeasureResult((math.inf,), build.error_no, build.time_cost, time.time(), error_msg=build.error_msg)
        for build in builds
    ]
    for task in {id(inp.program): inp.program for inp in inputs}.values():
        places = [n for n, inp in enumerate(inputs) if inp.program is task and not builds[n].error_no]
        traces = [inputs[n].trace for n in places]
        with ThisMachine().harness(task, 0, limits) as harness:
            begun = time.monotonic()
            for k, measurement in harness.measure([trace.to_json() for trace in traces], lambda: None):
                record = record_of(measurement, task, "by hand", traces[k], traces[k].decisions, 0)
                results[places[k]] = measured(record, time.monotonic() - begun)
    return results


@dataclass(frozen=True, slots=True, eq=False)
class OwnMachines:
    """Whatever a builder and a runner of one's own stand for."""

    builder: Any
    runner: Any

    def target_of(self, text: str | Target | None) -> str | Target | None:
        """The text itself."""
        return text

    def fit(self, task: Task) -> Task:
        """The task itself: the runner knows where it runs."""
        return task

    def harness(self, task: Task, seed: int, limits: Limits) -> OwnHarness:
        """What asks the builder and the runner."""
        del seed, limits
        return OwnHarness(task, self.builder, self.runner)


class OwnHarness:
    """Has candidates of one task built and run, some at a time; a harness.

    `input_of`: as what builder and runner see a candidate that is a configuration; None for others, which are states.
    """

    def __init__(self, task: Task, builder: Any, runner: Any) -> None:
        self.task, self.batch = task, BATCH
        self.input_of: Callable[[Any], MeasureInput | None] = lambda trace: None
        self._builder, self._runner = builder, runner
        self._search_task = lookup(__name__, "SearchTask").of(task)
        for one in (builder, runner):
            if callable(begin := getattr(one, "set_task", None)):
                begin(self._search_task)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is open."""

    def measure(self, traces: Iterable[Any], best: Callable[[], float | None], deadline: float = math.inf) -> Measured:
        """See Harness: the builder and the runner say how long they take, and whether a result is right."""
        del best
        number, some = 0, self._batches(iter(traces))
        while time.monotonic() < deadline and (batch := next(some, [])):
            for measurement in self._run(batch):
                yield number, measurement
                number += 1

    def _batches(self, traces: Iterator[Any]) -> Iterator[list[Any]]:
        """What is proposed before somebody waits for results, at most so many at a time."""
        while True:
            batch = list(islice(iter(lambda: next(traces, None), None), self.batch // 2))
            if not batch:
                return
            yield batch

    def _run(self, traces: Sequence[Any]) -> list[Measurement]:
        found: dict[int, Measurement] = {}
        inputs: dict[int, MeasureInput] = {}
        for number, trace in enumerate(traces):
            try:
                state = State(replay_recorded(fresh_schedule(self.task), trace))
                inputs[number] = self.input_of(trace) or MeasureInput(self._search_task, state)
            except ScheduleError as error:
                found[number] = Measurement(Status.ILLEGAL, (), str(error))
        if given := list(inputs.values()):
            builds = _results(self._builder, "build", BuildResult, given)
            results = _results(self._runner, "run", MeasureResult, given, builds)
            found |= {number: _measurement(result) for number, result in zip(inputs, results, strict=True)}
        return [found[number] for number in range(len(traces))]

    def compare(self, trace: Any) -> Comparison:
        """See Harness: nobody times NumPy there."""
        raise TensorlangError("a runner of one's own is not asked to time NumPy beside the best candidate")

    def rates(self) -> Rates | None:
        """See Harness: unknown."""
        return None

    def peak_gflops(self) -> float:
        """See Harness: unknown."""
        return 0.0


def _results(owner: Any, what: str, kind: type[Any], inputs: Sequence[MeasureInput], *more: Any) -> list[Any]:
    """What a builder or a runner returns: one result for each input."""
    function = getattr(owner, what)
    takes_verbose = "verbose" in inspect.signature(function).parameters
    found = list(function(inputs, *more, **({"verbose": 0} if takes_verbose else {})))
    if len(found) != len(inputs) or not all(isinstance(one, kind) for one in found):
        got = f"{len(found)}: {shown(found)}"
        name = type(owner).__name__
        raise DefinitionError(f"{name}.{what} returns a {kind.__name__} for each of {len(inputs)} inputs, got {got}")
    return found


def _measurement(result: MeasureResult) -> Measurement:
    if (record := result.record) is not None:
        seconds = record.seconds if record.status in (Status.OK, Status.NOISY) else ()
        return Measurement(record.status, seconds, record.error, record.checked, record.conditions, record.host)
    if result.ok:
        return Measurement(Status.OK, tuple(map(float, result.costs)))
    return Measurement(status_of(result.error_no), (), result.error_msg or f"error_no {int(result.error_no)}")
