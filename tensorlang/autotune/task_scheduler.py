"""Several tasks under one budget: trials go where they lower the weighted sum of times the most.

The gradient is that of Ansor (Zheng et al., OSDI 2020, section 6): what the last rounds of a task brought, and what
the next could bring at most, by its own history and by what similar tasks have reached.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import field, replace
from typing import Literal

import numpy as np

from tensorlang.autotune.apply import records_of
from tensorlang.autotune.budget import check_budget
from tensorlang.autotune.machines import Machines
from tensorlang.autotune.measuring.harness import BATCH, Harness, Limits
from tensorlang.autotune.records.record import TuningRecord
from tensorlang.autotune.records.store import log_path
from tensorlang.autotune.result import Result
from tensorlang.autotune.search.sketch_search import SketchSearch
from tensorlang.autotune.search_task import SearchTask, TuningOptions
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError

GOLDEN = 1.618
_ROUND = 16  # trials
Objective = Callable[[Sequence[float]], float]


@dataclass(slots=True)
class Standing:
    """How a task stands: `costs` holds the best seconds after each round; `dead` when its space is used up."""

    flops: float
    group: str
    costs: list[float] = field(default_factory=list)
    trials: int = 0
    dead: bool = False

    @property
    def best(self) -> float:
        """Seconds of the best schedule so far; infinite before there is one."""
        return self.costs[-1] if self.costs else math.inf


@dataclass(frozen=True, slots=True)
class Gradient:
    """Parameters of the choice: `alpha` weighs the past against the future, `beta` trusts similar tasks."""

    alpha: float = 0.2
    beta: float = 2.0
    window: int = 3

    def of(self, standing: Standing, others: Sequence[Standing]) -> float:
        """How the best seconds of a task change with one more round; never positive."""
        if standing.dead or not standing.costs:
            return 0.0
        if not math.isfinite(standing.best):
            return -math.inf  # nothing has worked yet
        costs, rounds = standing.costs, len(standing.costs)
        past = 0.0
        if rounds > self.window and math.isfinite(costs[-1 - self.window]):
            past = (costs[-1] - costs[-1 - self.window]) / self.window
        reachable = standing.best - standing.best / rounds
        similar = [o.flops / o.best for o in others if o.group == standing.group and math.isfinite(o.best)]
        if len(similar) > 1:
            reachable = min(reachable, self.beta * standing.flops / max(similar))
        return self.alpha * past + (1 - self.alpha) * min(0.0, reachable - standing.best)


class OpenMeasurers:
    """Harnesses of several tasks, kept open between their rounds: the last few, since each has processes."""

    MOST = 4

    def __init__(self, machines: Machines, limits: Limits, seed: int) -> None:
        self._machines = machines
        self._limits = limits
        self._seed = seed
        self._open: dict[int, Harness] = {}

    def of(self, n: int, task: SearchTask) -> Harness:
        """The harness of a task, by its number."""
        found = self._open.pop(n, None)
        if found is None:
            found = self._machines.harness(task.task, self._seed, self._limits).__enter__()
        self._open[n] = found
        if len(self._open) > self.MOST:
            self._open.pop(next(iter(self._open))).close()
        return found

    def close(self) -> None:
        """Close them all."""
        while self._open:
            self._open.popitem()[1].close()


class TaskScheduler:
    """Tunes several tasks in rounds. The objective is the sum of their times, each times its weight.

    `objective_func` of the times replaces it. `strategy`: `gradient`, or `round-robin`. `load_log_file`: tasks that
    this log has records of count as begun, so that those it has none of come first.
    """

    def __init__(
        self,
        tasks: Sequence[SearchTask],
        task_weights: Sequence[float] | None = None,
        objective_func: Objective | None = None,
        strategy: Literal["gradient", "round-robin"] = "gradient",
        alpha: float = 0.2,
        beta: float = 2.0,
        backward_window_size: int = 3,
        load_log_file: str | os.PathLike[str] | None = None,
    ) -> None:
        if not tasks:
            raise DefinitionError("TaskScheduler needs at least one task")
        if strategy not in ("gradient", "round-robin"):
            raise DefinitionError(f"strategy is 'gradient' or 'round-robin', got {strategy!r}")
        if task_weights is not None and len(task_weights) != len(tasks):
            raise DefinitionError(f"there are {len(tasks)} tasks and {len(task_weights)} weights")
        if task_weights is not None and not all(weight >= 0 for weight in task_weights):
            raise DefinitionError(f"weights are how often a task runs, got {list(task_weights)}")
        self.tasks = list(tasks)
        self.weights = [1.0] * len(tasks) if task_weights is None else list(map(float, task_weights))
        self.objective_func = objective_func or self._weighted_sum
        self.strategy = strategy
        self.gradient = Gradient(alpha, beta, backward_window_size)
        self.standings = [_standing(task) for task in tasks]
        self.results: list[Result | None] = [None] * len(tasks)
        if load_log_file is not None:
            for standing, task in zip(self.standings, self.tasks, strict=True):
                _resume(standing, records_of(log_path(load_log_file), task.task))

    @property
    def best_costs(self) -> list[float]:
        """Seconds of the best schedule of each task."""
        return [s.best for s in self.standings]

    @property
    def score(self) -> float:
        """The objective at the best times so far."""
        return self.objective_func(self.best_costs)

    def tune(self, tune_option: TuningOptions, seed: int = 0) -> list[Result]:
        """Tune all tasks within `num_measure_trials` (and `seconds`) together; returns their results.

        Every task gets a round first, a fair share when the budget is short. With a log (RecordToFile), what it holds
        of a task counts for that task's search, not for the budget. `early_stopping`: stop after so many trials that
        did not lower the objective. A cluster (`runner`) is connected once, for all tasks: those for this machine
        become tasks for the workers'. When no worker is left, tuning ends, and `ended` of a result says so.
        """
        check_budget(tune_option.num_measure_trials, tune_option.seconds, tune_option.early_stopping)
        deadline = None if tune_option.seconds is None else time.monotonic() + tune_option.seconds
        how = tune_option.measuring
        with how.machines() as machines, closing(OpenMeasurers(machines, how.limits, seed)) as measurers:
            for task in self.tasks:
                task.move_to(machines)
            self._tune(tune_option, deadline, seed, measurers)
        return [result for result in self.results if result is not None]

    def _tune(self, options: TuningOptions, deadline: float | None, seed: int, measurers: OpenMeasurers) -> None:
        budget = options.num_measure_trials
        searches = [task.search(seed) for task in self.tasks]
        spent = since_better = turn = 0
        while spent < budget and not all(s.dead for s in self.standings):
            if deadline is not None and time.monotonic() >= deadline:
                return
            if options.early_stopping is not None and since_better >= options.early_stopping:
                return
            chosen = self.choose(turn)
            turn += 1
            before = self.score
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            harness = measurers.of(chosen, self.tasks[chosen])
            size = min(self._round_size(options, harness), budget - spent)
            task_options = replace(options, num_measure_trials=size, seconds=left)
            result, used = self._round(chosen, task_options, searches[chosen], harness)
            spent += used
            since_better = 0 if self.score < before or not math.isfinite(before) else since_better + used
            if options.verbose:
                self._print(chosen, spent, budget)
            if result.ended:  # nobody is left to measure the other tasks either
                if options.verbose:
                    print(f"tuning ended early: {result.ended}", file=sys.stderr)
                return

    def _round_size(self, options: TuningOptions, harness: Harness) -> int:
        """Trials of a round: in proportion to who measures, a fair share when the budget is short."""
        share = options.num_measure_trials // len(self.tasks)
        return max(1, min(options.num_measures_per_round * harness.batch // BATCH, share))

    def choose(self, turn: int) -> int:
        """The task of the next round: each once, then by the strategy."""
        fresh = [n for n, s in enumerate(self.standings) if not s.costs and not s.dead]
        if fresh:
            return fresh[0]
        alive = [n for n, s in enumerate(self.standings) if not s.dead]
        if self.strategy == "round-robin":
            return alive[turn % len(alive)]
        return min(alive, key=lambda n: (self._slope(n), self.standings[n].trials))

    def _slope(self, n: int) -> float:
        """How the objective changes with one more round of a task, by the chain rule."""
        own = self.gradient.of(self.standings[n], self.standings)
        if not math.isfinite(own):
            return own
        costs = np.nan_to_num(np.asarray(self.best_costs), posinf=0.0)
        step = 1e-3 * costs[n]
        lower = [*costs[:n], costs[n] - step, *costs[n + 1 :]]
        return float(own * (self.objective_func(list(costs)) - self.objective_func(lower)) / step)

    def _round(self, n: int, options: TuningOptions, search: SketchSearch, harness: Harness) -> tuple[Result, int]:
        """Measure as many more candidates of a task as the options say; returns how many there were, too."""
        standing, task, had = self.standings[n], self.tasks[n], len(search.history.records)
        more = (had or task.recorded(options)) + options.num_measure_trials
        quiet = replace(options, num_measure_trials=more, verbose=max(0, options.verbose - 1), early_stopping=None)
        result = task.tune(quiet, seed=search.seed, measurer=harness, search=search)
        self.results[n] = result
        used = len(result.records) - max(had, result.resumed)
        standing.trials += used
        standing.costs.append(math.inf if result.best is None else result.best.median)
        standing.dead = not used and not result.ended
        return result, used

    def _weighted_sum(self, costs: Sequence[float]) -> float:
        return sum(weight * cost for weight, cost in zip(self.weights, costs, strict=True))

    def _print(self, n: int, spent: int, budget: int) -> None:
        name, best = self.tasks[n].task.workload, self.standings[n].best
        print(f"{spent}/{budget} trials: {name} {best * 1e3:.4g} ms; all {self.score * 1e3:.4g} ms", file=sys.stderr)


def _resume(standing: Standing, records: Sequence[TuningRecord]) -> None:
    """Count the records of a task as rounds, the last of which has brought the best of them."""
    best = min((record.median for record in records if record.ok), default=math.inf)
    standing.costs = [best] * -(-len(records) // _ROUND)
    standing.trials = len(records)


def _standing(task: SearchTask) -> Standing:
    """Tasks are similar that come from one workload and have, about, the same amount of operations."""
    work = task.task.workload
    return Standing(work.flops, f"{work.name} {int(math.log(work.flops + 1, GOLDEN))}")
