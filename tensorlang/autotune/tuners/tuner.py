"""What all tuners of templates share: propose, prove, measure once, tell, learn."""

from __future__ import annotations

import math
import os
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tensorlang.autotune.apply import fit_of, records_of
from tensorlang.autotune.budget import checked_seed
from tensorlang.autotune.context import scheduled
from tensorlang.autotune.loop import Budget, History, go_through
from tensorlang.autotune.machines import Machines
from tensorlang.autotune.measuring.harness import Harness, Measurement, record_of
from tensorlang.autotune.phases import Phase, enter
from tensorlang.autotune.records.record import Status, TuningRecord
from tensorlang.autotune.resuming import resumable
from tensorlang.autotune.templates.config import ConfigEntity
from tensorlang.autotune.templates.task import TemplateTask, collect
from tensorlang.autotune.tuners.measure import MeasureInput, MeasureOption, MeasureResult, measured, refused
from tensorlang.autotune.tuners.own import OwnHarness
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError, ScheduleError, TargetError, TensorlangError, shown
from tensorlang.schedule import Trace

MOST_REFUSED = 2000
MOST_EQUAL = 2000

Measured = tuple[MeasureInput, MeasureResult]
Callback = Callable[["Tuner", Sequence[MeasureInput], Sequence[MeasureResult]], None]


@dataclass(slots=True)
class _Trial:
    """A schedule that is measured, the configurations that make it, and what came of it."""

    trace: Trace
    configs: list[ConfigEntity]
    result: MeasureResult | None = None


class Tuner:
    """Finds fast configurations of a template's task. Equal seeds propose the same, as far as times are the same.

    A tuner of your own defines `propose`, and `learn` if it learns; or, as in AutoTVM, `next_batch` and `has_next`, and
    `update` if it learns.
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
        self.history = History()
        self.best: MeasureResult | None = None
        self.best_config: ConfigEntity | None = None
        self._by_trace: dict[str, MeasureResult] = {}
        self._proven: dict[int, Trace | None] = {}

    def propose(self, count: int) -> list[int]:
        """Numbers of up to `count` configurations that are not in `seen`; none when there are no more."""
        name = type(self).__name__
        raise DefinitionError(f"{name} defines neither propose, nor next_batch and has_next: it finds nothing to try")

    def learn(self, config: ConfigEntity, result: MeasureResult) -> None:
        """Take in a result: of a measurement, or of a configuration that was refused."""

    @property
    def best_flops(self) -> float:
        """Operations a second of the best configuration so far."""
        return 0.0 if self.best is None else self.task.flop / self.best.seconds

    @property
    def records(self) -> list[TuningRecord]:
        """What was measured, a history included."""
        return self.history.records

    @property
    def best_iter(self) -> int:
        """The trial that brought the best configuration, from 1."""
        return self.history.best_at

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
        return [self.space.at(n) for n in numbers]

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Take in results."""
        for inp, result in zip(inputs, results, strict=True):
            if not any(result.record is record for record in self.records):
                self.keep(result, inp.config)
            self.learn(inp.config, result)

    def hear(self, config: ConfigEntity, result: MeasureResult) -> None:
        """Draw on a result: `learn`, or an `update` of one's own."""
        if type(self).update is Tuner.update:
            self.learn(config, result)
        else:
            self.update([self.input(config)], [result])

    def keep(self, result: MeasureResult, config: ConfigEntity | None) -> None:
        """Take in a record, if there is one; a noisy one says nothing of its trace, which may be measured again."""
        if result.ok and (self.best is None or result.seconds < self.best.seconds):
            self.best, self.best_config = result, config
        if (record := result.record) is None:
            return
        if record.status is not Status.NOISY:
            self._by_trace.setdefault(record.trace_key, result)
        self.history.take(record)

    def load_history(
        self, data_set: str | os.PathLike[str] | Iterable[TuningRecord | Measured], min_seed_records: int = 500
    ) -> int:
        """Take over the records of a log of this task, or records, or pairs of an input and a result.

        They are not measured again, and they teach. Returns how many there are. Records of other programs, targets and
        versions of the template are left alone. `min_seed_records` is accepted for AutoTVM's sake.
        """
        pairs = 0
        if isinstance(data_set, str | os.PathLike):
            mine = list(records_of(data_set, self.task.task))
        else:
            given = list(data_set)
            pairs = self._load_pairs([pair for pair in given if not isinstance(pair, TuningRecord)])
            mine = [r for r in given if isinstance(r, TuningRecord) and self.task.task.accepts(r)]
        program, task = self.task.task.program, self.task
        mine = resumable(mine, program, task.name, lambda record: scheduled(task, fit_of(record, task.task)))
        for record in mine:
            config = self.task.config_of(record)
            if config is None or record.status is Status.NOISY:
                self.keep(measured(record), config)
            else:
                self.seen.add(config.index)
                self.update([self.input(config)], [measured(record)])
        return len(mine) + pairs

    def _load_pairs(self, pairs: Sequence[Measured]) -> int:
        """Take in measurements of this task as AutoTVM has them; how many there are."""
        key, target = self.task.workload.key, self.task.target
        mine = [(inp, result) for inp, result in pairs if inp.task.workload.key == key and inp.target == target]
        for inp, result in mine:
            self.seen.add(inp.config.index)
            self.update([inp], [result])
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
        end = math.inf if seconds is None else time.monotonic() + seconds
        self.history.resumed = self.trials
        search = Configurations(self, callbacks)
        search.introduce(measurer)
        go_through(search, measurer, Budget(self.trials + n_trial, end, early_stopping))
        self.require_legal()

    def known(self, trace: Trace) -> MeasureResult | None:
        """What a schedule came to, whatever configurations make it."""
        return self._by_trace.get(trace.key)

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
        self.update([self.input(config)], [refused(why)])
        return None

    def require_legal(self) -> None:
        """Raise ScheduleError when nothing was measured because everything was refused."""
        if self.trials or not self.filtered:
            return
        tried = f"all {self.filtered}" if not self.has_next() else f"the first {self.filtered}"
        reasons = [f"{count} times: {why}" for why, count in self.refusals.most_common(3)]
        raise ScheduleError(
            f"tuning template {self.task.name!r}",
            "\n".join([f"no configuration is legal: {tried} tried were refused before any build", *reasons]),
            suggested=["change the knobs, so that some of the space is left"],
        )

    def input(self, config: ConfigEntity) -> MeasureInput:
        """A configuration as callbacks see it."""
        return MeasureInput(self.task.target, self.task, config)


@dataclass
class Configurations:
    """Proposes what a tuner does, proven legal, each schedule once."""

    tuner: Tuner
    callbacks: Sequence[Callback] = ()
    _in_work: dict[str, _Trial] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.task, self.seed, self.history = self.tuner.task.task, self.tuner.seed, self.tuner.history
        self._own = self.tuner.trials

    def move_to(self, machines: Machines) -> None:
        self.tuner.move_to(machines)
        self.task, self.history = self.tuner.task.task, self.tuner.history

    def read(self, log: Path | None) -> None:
        if log is not None:
            self.tuner.load_history(log)
        self.history.resumed = self.tuner.trials

    def tune(self, harness: Harness, budget: Budget) -> None:
        """See Search: what the tuner had measured before does not count, and any time is enough for one trial."""
        self.history.peak = harness.peak_gflops()
        self.introduce(harness)
        budget = replace(budget, trials=self._own + budget.trials)
        if self.history.best is None and budget.end < math.inf:
            go_through(self, harness, budget.for_one_more(self.history))
        go_through(self, harness, budget)
        self.tuner.require_legal()

    def introduce(self, harness: Harness) -> None:
        """Let runners of one's own see configurations of the template."""
        if isinstance(harness, OwnHarness):
            harness.input_of = self._input_of

    def _input_of(self, trace: Any) -> MeasureInput | None:
        trial = self._in_work.get(Trace.from_json(trace).key)
        return None if trial is None else self.tuner.input(trial.configs[0])

    def propose(self, count: int, end: float) -> list[_Trial]:
        """See Search: fewer, or none, where proposals are refused, or are of known schedules, again and again."""
        enter(Phase.RANKING)
        batch: list[_Trial] = []
        refused, equal = self.tuner.filtered, 0
        while len(batch) < count and time.monotonic() < end:
            if self.tuner.filtered - refused >= MOST_REFUSED or equal >= MOST_EQUAL or not self.tuner.has_next():
                break
            configs = self.tuner.next_batch(count - len(batch))
            if not configs:
                break
            for config in configs:
                trace = self.tuner.prove(config)
                if trace is None:
                    continue
                if (trial := self._in_work.get(trace.key)) is not None:
                    trial.configs.append(config)
                    equal += 1
                elif known := self.tuner.known(trace):
                    self.tuner.hear(config, known)
                    equal += 1
                else:
                    self._in_work[trace.key] = _Trial(trace, [config])
                    batch.append(self._in_work[trace.key])
        return batch

    def take(self, trial: _Trial, measurement: Measurement, seconds: float) -> TuningRecord:
        tuner, config, peak = self.tuner, trial.configs[0], self.history.peak
        made = tuner.task.sketch, trial.trace, tuner.space.digits(config.index)
        record = record_of(measurement, self.task, *made, self.seed, peak=peak, settings=config.settings())
        trial.result = measured(record, seconds)
        tuner.keep(trial.result, config)
        for callback in self.callbacks:
            callback(tuner, [tuner.input(config)], [trial.result])
        return record

    def study(self, trial: _Trial, record: TuningRecord) -> None:
        """See Search: what is known of one configuration is known of all that make this schedule."""
        assert trial.result is not None
        del self._in_work[trial.trace.key]
        for config in trial.configs:
            self.tuner.hear(config, trial.result)
