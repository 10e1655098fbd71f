"""What all tuners of templates share: propose, prove, measure once, tell, learn."""

from __future__ import annotations

import os
import time
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from tensorlang.autotune.apply import records_of
from tensorlang.autotune.measuring.harness import Harness, Limits, Measurement, record_of
from tensorlang.autotune.measuring.measurer import Measurer
from tensorlang.autotune.records.record import Status, TuningRecord
from tensorlang.autotune.templates.config import ConfigEntity
from tensorlang.autotune.templates.task import TemplateTask
from tensorlang.autotune.tuners.measure import MeasureInput, MeasureResult, measure_option
from tensorlang.errors import ScheduleError, TensorlangError
from tensorlang.schedule import Trace

BATCH = 8
MOST_REFUSED = 2000
MOST_EQUAL = 2000

Callback = Callable[["Tuner", Sequence[MeasureInput], Sequence[MeasureResult]], None]


class Tuner(ABC):
    """Finds fast configurations of a template's task. Equal seeds propose the same, as far as times are the same.

    A tuner of your own defines `propose`, and `learn` if it learns.
    """

    def __init__(self, task: TemplateTask, seed: int = 0) -> None:
        self.task = task
        self.space = task.config_space
        self.seed = seed
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
        measure_option: Limits | None = None,
        early_stopping: int | None = None,
        callbacks: Sequence[Callback] = (),
        si_prefix: str = "G",
        seconds: float | None = None,
    ) -> None:
        """Measure up to `n_trial` configurations (or for so many `seconds`), and tell every callback of each.

        `early_stopping`: stop after so many trials without a better one. `si_prefix` is accepted for AutoTVM's sake.
        Raises ScheduleError when no configuration is legal, TargetError when this machine cannot run the target.
        """
        with Measurer(self.task.task, self.seed, measure_option or _standard()) as measurer:
            self.search(measurer, n_trial, early_stopping, callbacks, seconds)

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
        first = self.trials

        def over() -> bool:
            late = seconds is not None and time.monotonic() - self.start >= seconds
            stuck = early_stopping is not None and self.trials - max(first, self.best_iter) >= early_stopping
            return late or stuck or self.trials - first >= n_trial

        while not over():
            batch = self._legal_batch(min(BATCH, n_trial - (self.trials - first)))
            if not batch:
                break
            begun = time.monotonic()
            traces = [trace.to_json() for _, trace in batch]
            for position, measurement in measurer.measure(traces, self._best_seconds):
                (config, *equal), trace = batch[position]
                result = MeasureResult(self._record(config, trace, measurement), time.monotonic() - begun)
                inputs = [self._input(config)]
                self.update(inputs, [result])
                for other in equal:
                    self.learn(other, result)
                for callback in callbacks:
                    callback(self, inputs, [result])
                if over():
                    break
        if not self.trials:
            self._require_legal()

    def _legal_batch(self, count: int) -> list[tuple[list[ConfigEntity], Trace]]:
        """Up to `count` traces that are proven legal and that nobody measured yet, and the configurations of each.

        Fewer, or none, where proposals are refused, or are of known schedules, again and again.
        """
        batch: dict[str, tuple[list[ConfigEntity], Trace]] = {}
        refused, equal = self.filtered, 0
        while len(batch) < count and self.filtered - refused < MOST_REFUSED and equal < MOST_EQUAL:
            configs = self.next_batch(count - len(batch))
            if not configs:
                break
            for config in configs:
                trace = self.prove(config)
                if trace is None:
                    continue
                if known := self._by_trace.get(trace.key):
                    self.learn(config, known)
                    equal += 1
                else:
                    equal += trace.key in batch
                    batch.setdefault(trace.key, ([], trace))[0].append(config)
        return list(batch.values())

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
            legal=["change the knobs, so that some of the space is left"],
        )

    def _best_seconds(self) -> float | None:
        return None if self.best is None else self.best.seconds

    def _input(self, config: ConfigEntity) -> MeasureInput:
        return MeasureInput(self.task.target, self.task, config)

    def _record(self, config: ConfigEntity, trace: Trace, measurement: Measurement) -> TuningRecord:
        decisions = self.space.digits(config.index)
        return record_of(measurement, self.task.task, self.task.sketch, trace, decisions, self.seed)


def _standard() -> Limits:
    return measure_option()
