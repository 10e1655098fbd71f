"""What all tuners of templates share: propose, prove, measure once, tell, learn."""

from __future__ import annotations

import math
import os
import time
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorlang.autotune.apply import fit_of, records_of
from tensorlang.autotune.budget import checked_seed
from tensorlang.autotune.context import scheduled
from tensorlang.autotune.machines import Machines
from tensorlang.autotune.measuring.harness import Harness, Measurement, record_of
from tensorlang.autotune.measuring.supply import overlapped
from tensorlang.autotune.phases import Phase, enter
from tensorlang.autotune.records.record import Status, TuningRecord
from tensorlang.autotune.resuming import resumable
from tensorlang.autotune.templates.config import ConfigEntity
from tensorlang.autotune.templates.task import TemplateTask, collect
from tensorlang.autotune.tuners.measure import MeasureInput, MeasureOption, MeasureResult
from tensorlang.errors import DefinitionError, ScheduleError, TargetError, TensorlangError, shown
from tensorlang.schedule import Trace

MOST_REFUSED = 2000
MOST_EQUAL = 2000

Callback = Callable[["Tuner", Sequence[MeasureInput], Sequence[MeasureResult]], None]


@dataclass(slots=True)
class _Trial:
    """A schedule that is measured, the configurations that make it, and what came of it."""

    trace: Trace
    configs: list[ConfigEntity]
    begun: float = 0.0
    result: MeasureResult | None = None


class Tuner(ABC):
    """Finds fast configurations of a template's task. Equal seeds propose the same, as far as times are the same.

    A tuner of your own defines `propose`, and `learn` if it learns.
    """

    def __init__(self, task: TemplateTask, seed: int = 0) -> None:
        self.task = task
        self.space = task.config_space
        self.seed = checked_seed(seed)
        self.reset()

    def reset(self) -> None:
        """Forget what was measured."""
        self.rng = np.random.default_rng(self.seed)
        self.seen: set[int] = set()
        self.refusals: Counter[str] = Counter()
        self.records: list[TuningRecord] = []
        self.best: MeasureResult | None = None
        self.best_config: ConfigEntity | None = None
        self.best_iter = 0
        self.start = time.monotonic()
        self._by_trace: dict[str, MeasureResult] = {}
        self._proven: dict[int, Trace | None] = {}
        self._in_work: dict[str, _Trial] = {}

    @abstractmethod
    def propose(self, count: int) -> list[int]:
        """Numbers of up to `count` configurations that are not in `seen`; none when there are no more."""

    def learn(self, config: ConfigEntity, result: MeasureResult) -> None:  # noqa: B027 - who only proposes needs none
        """Take in a result: of a measurement, or of a configuration that was refused."""

    @property
    def best_flops(self) -> float:
        """Operations a second of the best configuration so far."""
        return 0.0 if self.best is None else self.task.flop / self.best.seconds

    @property
    def trials(self) -> int:
        """Measurements so far, those of a history included."""
        return len(self.records)

    @property
    def filtered(self) -> int:
        """Configurations that were refused before any build."""
        return self.refusals.total()

    def has_next(self) -> bool:
        """Whether there are configurations that were not proposed yet."""
        return len(self.seen) < self.space.size

    def next_batch(self, batch_size: int) -> list[ConfigEntity]:
        """Configurations to try next; each is proposed once."""
        numbers = list(dict.fromkeys(n for n in self.propose(batch_size) if n not in self.seen))
        self.seen.update(numbers)
        return [self.space.get(n) for n in numbers]

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Take in results."""
        for measured, result in zip(inputs, results, strict=True):
            self._keep(result, measured.config)
            self.learn(measured.config, result)

    def _keep(self, result: MeasureResult, config: ConfigEntity | None) -> None:
        """Take in a record, if there is one; a noisy one says nothing of its trace, which may be measured again."""
        if result.record is None:
            return
        self.records.append(result.record)
        if result.record.status is not Status.NOISY:
            self._by_trace.setdefault(result.record.trace_key, result)
        if result.ok and (self.best is None or result.seconds < self.best.seconds):
            self.best, self.best_config, self.best_iter = result, config, self.trials

    def load_history(self, data_set: str | os.PathLike[str] | Iterable[TuningRecord]) -> int:
        """Take over the records of a log (or records) of this task: they are not measured again, and they teach.

        Returns how many there are. Records of other programs, targets and versions of the template are left alone.
        """
        if isinstance(data_set, str | os.PathLike):
            mine = list(records_of(data_set, self.task.task))
        else:
            mine = [r for r in data_set if self.task.task.accepts(r)]
        program, task = self.task.task.program, self.task
        mine = resumable(mine, program, task.name, lambda record: scheduled(task, fit_of(record, task.task)))
        for record in mine:
            config = self.task.config_of(record)
            if config is None or record.status is Status.NOISY:
                self._keep(MeasureResult(record), config)
            else:
                self.seen.add(config.index)
                self.update([self._input(config)], [MeasureResult(record)])
        return len(mine)

    def tune(
        self,
        n_trial: int,
        measure_option: MeasureOption | None = None,
        early_stopping: int | None = None,
        callbacks: Sequence[Callback] = (),
        si_prefix: str = "G",
        seconds: float | None = None,
    ) -> None:
        """Measure up to `n_trial` configurations (or for so many `seconds`), and tell every callback of each.

        `measure_option`: within which limits, and where: on this machine, or on a cluster (autotune.measure_option).
        `early_stopping`: stop after so many trials without a better one. `si_prefix` is accepted for AutoTVM's sake.
        Raises ScheduleError when no configuration is legal, TargetError when no machine can run the target,
        WorkersLost when nobody of a cluster is left (the tuner and its callbacks have what was measured).
        """
        option = MeasureOption() if measure_option is None else measure_option
        if not isinstance(option, MeasureOption):
            raise DefinitionError(f"measure_option is what autotune.measure_option(...) returns, got {shown(option)}")
        with option.machines() as machines:
            self.move_to(machines)
            with machines.harness(self.task.task, self.seed, option.limits) as measurer:
                self.search(measurer, n_trial, early_stopping, callbacks, seconds)

    def move_to(self, machines: Machines) -> None:
        """Tune for these machines: a task for this one becomes one for theirs, whose space may be another.

        TargetError when they cannot run it, or when the tuner knows measurements of another machine.
        """
        fitted = machines.fit(self.task.task)
        if fitted.target == self.task.target:
            return
        if self.trials:
            raise TargetError(
                f"the tuner has {self.trials} measurements for {self.task.target}, and the runner's machines are "
                f"{fitted.target}; make a tuner of a task for that target, or `reset()` this one"
            )
        known = self.task
        self.task = collect(known.template, known.args, fitted.target, fitted.threads, fitted.workload.name)
        self.space = self.task.config_space
        self.reset()

    def search(
        self,
        measurer: Harness,
        n_trial: int,
        early_stopping: int | None = None,
        callbacks: Sequence[Callback] = (),
        seconds: float | None = None,
    ) -> None:
        """`tune` with a measurer that is open already."""
        self.start = time.monotonic()
        first, end = self.trials, math.inf if seconds is None else self.start + seconds

        def over() -> bool:
            stuck = early_stopping is not None and self.trials - max(first, self.best_iter) >= early_stopping
            return time.monotonic() >= end or stuck or self.trials - first >= n_trial

        if not over():
            trials: list[_Trial] = []
            proposals = self._proposals(trials, measurer.batch, n_trial, end)
            with closing(measurer.measure(proposals, self._best_seconds, end)) as measured:
                for position, measurement in measured:
                    self._take(trials[position], measurement, callbacks)
                    if over():
                        break
            self._study(trials)
            self._in_work.clear()
        if not self.trials:
            self._require_legal()

    def _proposals(self, trials: list[_Trial], batch: int, count: int, end: float) -> Iterator[Any]:
        """Up to `count` traces to measure, whose trials are put into `trials`; None when results are needed first."""

        def propose(size: int) -> int:
            enter(Phase.RANKING)
            made = self._legal_batch(size, end)
            trials.extend(made)
            return len(made)

        def is_measured(n: int) -> bool:
            return trials[n].result is not None

        for n in overlapped(propose, is_measured, lambda n: self._study([trials[n]]), batch, count):
            if n is None:
                yield None
                continue
            trials[n].begun = time.monotonic()
            yield trials[n].trace.to_json()

    def _take(self, trial: _Trial, measurement: Measurement, callbacks: Sequence[Callback]) -> None:
        """Keep what came of a trial, and tell of it."""
        config = trial.configs[0]
        trial.result = MeasureResult(self._record(config, trial.trace, measurement), time.monotonic() - trial.begun)
        self._keep(trial.result, config)
        for callback in callbacks:
            callback(self, [self._input(config)], [trial.result])

    def _study(self, trials: Sequence[_Trial]) -> None:
        """Learn from the trials that are done, once from each."""
        for trial in trials:
            if trial.result is not None and self._in_work.pop(trial.trace.key, None) is not None:
                for config in trial.configs:
                    self.learn(config, trial.result)

    def _legal_batch(self, count: int, end: float) -> list[_Trial]:
        """Up to `count` schedules that are proven legal and that nobody measured yet.

        Fewer, or none, where proposals are refused, or are of known schedules, again and again, or at the `end`.
        """
        batch: list[_Trial] = []
        refused, equal = self.filtered, 0
        while len(batch) < count and time.monotonic() < end:
            if self.filtered - refused >= MOST_REFUSED or equal >= MOST_EQUAL:
                break
            configs = self.next_batch(count - len(batch))
            if not configs:
                break
            for config in configs:
                trace = self.prove(config)
                if trace is None:
                    continue
                if (trial := self._in_work.get(trace.key)) is not None:
                    trial.configs.append(config)
                    equal += 1
                elif known := self._by_trace.get(trace.key):
                    self.learn(config, known)
                    equal += 1
                else:
                    self._in_work[trace.key] = _Trial(trace, [config])
                    batch.append(self._in_work[trace.key])
        return batch

    def prove(self, config: ConfigEntity) -> Trace | None:
        """The trace of a configuration; None when a filter, the template or a proof refuses it. Each is asked once."""
        if config.index not in self._proven:
            self._proven[config.index] = self._trace_of(config)
        return self._proven[config.index]

    def _trace_of(self, config: ConfigEntity) -> Trace | None:
        try:
            if self.space.allows(config):
                return self.task.trace(config)
            why = "a multi_filter of the template does not allow it"
        except ScheduleError as error:
            why = f"{error.asked}: {error.why}"
        except TensorlangError as error:
            why = str(error)
        except Exception as error:  # the template is the user's, and may fail for some configurations only
            line = traceback.extract_tb(error.__traceback__)[-1]
            why = f"the template failed at {line.filename}:{line.lineno}: {type(error).__name__}: {error}"
        self.refusals[why] += 1
        self.seen.add(config.index)
        self.update([self._input(config)], [MeasureResult(None, refusal=why)])
        return None

    def _require_legal(self) -> None:
        """Raise ScheduleError when nothing was measured because everything was refused."""
        if not self.filtered:
            return
        tried = f"all {self.filtered}" if not self.has_next() else f"the first {self.filtered}"
        reasons = [f"{count} times: {why}" for why, count in self.refusals.most_common(3)]
        raise ScheduleError(
            f"tuning template {self.task.name!r}",
            "\n".join([f"no configuration is legal: {tried} tried were refused before any build", *reasons]),
            suggested=["change the knobs, so that some of the space is left"],
        )

    def _best_seconds(self) -> float | None:
        return None if self.best is None else self.best.seconds

    def _input(self, config: ConfigEntity) -> MeasureInput:
        return MeasureInput(self.task.target, self.task, config)

    def _record(self, config: ConfigEntity, trace: Trace, measurement: Measurement) -> TuningRecord:
        decisions = self.space.digits(config.index)
        settings = config.settings()
        return record_of(measurement, self.task.task, self.task.sketch, trace, decisions, self.seed, settings=settings)
