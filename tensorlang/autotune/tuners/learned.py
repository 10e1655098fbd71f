"""A tuner that learns what is fast, from the loops that configurations make and from their knobs."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang.autotune.model.cost_model import CostModel
from tensorlang.autotune.records.record import Status
from tensorlang.autotune.search.knowledge import make_scorer
from tensorlang.autotune.search.pretrained import chosen_model
from tensorlang.autotune.space.draft import Draft
from tensorlang.autotune.templates.config import ConfigEntity
from tensorlang.autotune.templates.space import Digits, Rows
from tensorlang.autotune.templates.task import TemplateTask
from tensorlang.autotune.tuners.index import draw_unseen
from tensorlang.autotune.tuners.measure import MeasureResult
from tensorlang.autotune.tuners.tuner import Tuner
from tensorlang.errors import DefinitionError
from tensorlang.limits import for_a_record
from tensorlang.schedule import Trace
from tensorlang.schedule.recorded import argument_bytes

POPULATION = 1024
GENERATIONS = 4
PARENTS = 128
ELITES = 16
FEWEST = 8
TAUGHT = 512
RANDOM_SHARE = 0.1
DIFFERENT_KNOBS = 2
LOOKED_AT = 32  # trials for which as many configurations are looked at again as before the first
REFUSED_IS_SLOWER = 4.0
"""What was refused or failed counts as so many times slower than the slowest measured, so that it is avoided."""

LOSSES = ("reg", "rank", "rank-binary")
FEATURES = ("knob", "itervar", "curve")

Described = tuple[Rows, float]


class XGBTuner(Tuner):
    """Learns with XGBoost in two steps: knobs say which configurations to look at, their loops which to measure.

    `plan_size` configurations are instantiated before the first trial, and as many again for every 32 trials: at random
    at first, later the best of a population that evolves on a model of the knobs. Of all that were looked at, those are
    measured that a model of loops (an analytical estimate, corrected by what was measured) finds best, and one in ten
    at random. A guard chooses between regression and ranking: `loss_type` and `feature_type` are accepted for AutoTVM's
    sake. `model`: a file of what was learned from other programs (autotune.train_model), or
    `pretrained`; it corrects the estimate from the start.
    """

    def __init__(
        self,
        task: TemplateTask,
        plan_size: int = 64,
        feature_type: str = "itervar",
        loss_type: str = "reg",
        seed: int = 0,
        model: str | os.PathLike[str] | None = None,
    ) -> None:
        for what, word, known in (("feature_type", feature_type, FEATURES), ("loss_type", loss_type, LOSSES)):
            if word not in known:
                raise DefinitionError(f"{what} is one of {', '.join(known)}, got {word!r}")
        self.plan_size = plan_size
        self._transferred = chosen_model(model, task.task.target)
        super().__init__(task, seed)

    def reset(self) -> None:
        super().reset()
        self._scorer = make_scorer(self.task.task, self.seed, self._transferred)
        self._loop_model = CostModel(self.seed)
        self._knob_model = CostModel(self.seed)
        self._described: dict[int, Described] = {}
        self._planned: dict[int, None] = {}
        self._seconds: dict[int, float] = {}
        self._steps: dict[int, Any] = {}  # as records have them
        self._failed: dict[int, None] = {}
        self._learned = 0

    def learn(self, config: ConfigEntity, result: MeasureResult) -> None:
        if result.ok and result.record is not None:
            self._seconds[config.index] = result.seconds
            self._steps[config.index] = result.record.trace
        elif result.record is None or result.record.status is not Status.NOISY:
            self._failed[config.index] = None

    def propose(self, count: int) -> list[int]:
        """Of the configurations that were looked at the best, different ones first; one in ten at random."""
        self._fit()
        self._plan(max(count, self.plan_size if not self._planned else self.plan_size * count // LOOKED_AT))
        at_random = sum(self.rng.random() < RANDOM_SHARE for _ in range(count)) if self._seconds else 0
        picked = self._diverse(self._ranked(), count - at_random)
        taken = set(picked)
        return picked + [n for n in draw_unseen(self, count - len(picked)) if n not in taken]

    def _plan(self, count: int) -> None:
        """Look at some more configurations: prove and describe them."""
        wanted = self._evolved(count) if len(self._seconds) >= FEWEST and self.space.shape else draw_unseen(self, count)
        for number in wanted:
            config = self.space.at(number)
            trace = self.prove(config)
            if trace is not None:
                self._describe(number, trace)
                self._planned[number] = None

    def _describe(self, number: int, trace: Trace) -> Described:
        """Features of the loops and the knobs of a configuration, and its estimated seconds, as far as corrected."""
        if number not in self._described:
            draft = Draft.of(self.task.task.outputs)
            for step in trace.steps:
                draft.apply(step)
            nests = draft.scheduled.nests({}, 1)
            guess = self._scorer.estimate(nests)
            loops = self._scorer.features(nests, guess)
            row = np.concatenate([loops, self.space.features(self._digits([number]))], axis=1)
            known = self._scorer.model.prior(loops, guess.seconds)  # knobs mean nothing to what other programs taught
            self._described[number] = row[0], float(np.exp(known[0]))
        return self._described[number]

    def _describable(self, number: int) -> bool:
        """Whether the record of a configuration can be described; one that is somebody else's may say anything."""
        try:
            with for_a_record(argument_bytes(self.task.task.program)):
                self._describe(number, Trace.from_json(self._steps[number]))
        except Exception:
            del self._seconds[number]
            self._failed[number] = None
            return False
        return True

    def _digits(self, numbers: list[int]) -> Digits:
        rows = [list(self.space.digits(n).values()) for n in numbers]
        return np.asarray(rows, dtype=np.int64).reshape(len(numbers), len(self.space.shape))

    def _fit(self) -> None:
        """Train both models on what was measured since, the last few hundred."""
        known = len(self._seconds) + len(self._failed)
        if self._learned == known or not self._seconds:
            return
        self._learned = known
        taught = [n for n in list(self._seconds)[-TAUGHT:] if self._describable(n)]
        if not taught:
            return
        seconds = np.asarray([self._seconds[n] for n in taught])
        described = [self._described[n] for n in taught]
        rows = np.stack([row for row, _ in described])
        self._loop_model.fit(rows, np.asarray([estimate for _, estimate in described]), seconds)
        failed = list(self._failed)[-TAUGHT:]
        slow = np.full(len(failed), REFUSED_IS_SLOWER * seconds.max())
        knobs = self.space.features(self._digits(taught + failed))
        # Knobs have no estimate: all are equal to it, so the model ranks.
        self._knob_model.fit(knobs, np.ones(len(knobs)), np.concatenate([seconds, slow]))

    def _ranked(self) -> list[int]:
        """What was looked at and not tried yet, best first."""
        left = [n for n in self._planned if n not in self.seen]
        if not left:
            return []
        rows = np.stack([self._described[n][0] for n in left])
        scores = self._loop_model.score(rows, np.asarray([self._described[n][1] for n in left]))
        return [left[i] for i in np.argsort(scores, kind="stable")]

    def _evolved(self, count: int) -> list[int]:
        """Configurations that nobody looked at: random ones and the fastest, bred for some generations, best first."""
        fastest = sorted(self._seconds, key=self._seconds.__getitem__)[:ELITES]
        elites = self._digits(fastest)
        pool = np.unique(np.concatenate([elites, self.space.sample(self.rng, POPULATION)]), axis=0)
        for _ in range(GENERATIONS):
            parents = pool[self._order(pool)[:PARENTS]]
            pool = np.unique(np.concatenate([parents, elites, self._children(parents)]), axis=0)
        found: list[int] = []
        for row in pool[self._order(pool)]:
            number = self.space.number(row)
            if number not in self.seen and number not in self._planned:
                found.append(number)
            if len(found) == count:
                break
        return found

    def _order(self, pool: Digits) -> npt.NDArray[np.int64]:
        scores = self._knob_model.score(self.space.features(pool), np.ones(len(pool)))
        return np.argsort(scores, kind="stable")

    def _children(self, parents: Digits) -> Digits:
        """Half are crossed; about one knob of each is changed, to a neighbouring candidate or any."""
        bases = np.asarray(self.space.shape)
        mothers, fathers = (parents[self.rng.integers(0, len(parents), POPULATION)] for _ in range(2))
        crossed = np.where(self.rng.random(mothers.shape) < 0.5, mothers, fathers)
        children = np.where(self.rng.random((POPULATION, 1)) < 0.5, crossed, mothers)
        stepped = np.clip(children + self.rng.choice([-1, 1], children.shape), 0, bases - 1)
        changed = np.where(self.rng.random(children.shape) < 0.5, stepped, self.rng.integers(0, bases, children.shape))
        return np.where(self.rng.random(children.shape) < 1 / len(bases), changed, children)

    def _diverse(self, ranked: list[int], count: int) -> list[int]:
        """The first that differ from one another in two knobs; closer ones only to fill up."""
        rows = self._digits(ranked)
        picked: list[int] = []
        for n, row in enumerate(rows):
            if len(picked) == count:
                break
            if all(np.count_nonzero(row != rows[other]) >= DIFFERENT_KNOBS for other in picked):
                picked.append(n)
        picked += [n for n in range(len(ranked)) if n not in picked][: count - len(picked)]
        return [ranked[n] for n in picked]
