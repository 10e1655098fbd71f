"""Crossing and mutation of the best configurations."""

from __future__ import annotations

from tensorlang.autotune.templates.config import ConfigEntity
from tensorlang.autotune.templates.task import TemplateTask
from tensorlang.autotune.tuners.index import draw_unseen
from tensorlang.autotune.tuners.measure import MeasureResult
from tensorlang.autotune.tuners.tuner import Tuner

ATTEMPTS = 20


class GATuner(Tuner):
    """A genetic search: a first population at random, then children of what was fast.

    `pop_size` configurations are a generation, `elite_num` of all times stay parents, and each knob of a child changes
    with `mutation_prob`.
    """

    def __init__(
        self,
        task: TemplateTask,
        pop_size: int = 100,
        elite_num: int = 3,
        mutation_prob: float = 0.1,
        seed: int = 0,
    ) -> None:
        self.pop_size = pop_size
        self.elite_num = elite_num
        self.mutation_prob = mutation_prob
        super().__init__(task, seed)

    def reset(self) -> None:
        super().reset()
        self._elites: list[tuple[float, list[int]]] = []
        self._scored: list[tuple[float, list[int]]] = []
        self._parents: list[tuple[float, list[int]]] = []

    def learn(self, config: ConfigEntity, result: MeasureResult) -> None:
        """A generation that is complete gives the parents of the next."""
        genes = list(self.space.digits(config.index).values())
        self._scored.append((1 / result.seconds, genes))
        self._elites = sorted([*self._elites, (1 / result.seconds, genes)], reverse=True)[: self.elite_num]
        if len(self._scored) >= self.pop_size:
            self._parents, self._scored = self._scored, []

    def propose(self, count: int) -> list[int]:
        """Children, or configurations at random in the first generation and where children are known already."""
        if not self._parents:
            return draw_unseen(self, count)
        found: dict[int, None] = {}
        for _ in range(ATTEMPTS * count):
            number = self._child()
            if number not in self.seen:
                found[number] = None
            if len(found) == count:
                return list(found)
        return [*found, *(n for n in draw_unseen(self, count - len(found)) if n not in found)]

    def _child(self) -> int:
        """Two parents, the faster the likelier, crossed at one place, and mutated."""
        pool = [*self._elites, *self._parents]
        weights = [score for score, _ in pool]
        total = sum(weights)
        mother, father = self.rng.choice(len(pool), size=2, p=[w / total for w in weights])
        cut = int(self.rng.integers(len(self.space.shape) + 1))
        genes = pool[mother][1][:cut] + pool[father][1][cut:]
        mutated = [
            int(self.rng.integers(base)) if self.rng.random() < self.mutation_prob else gene
            for gene, base in zip(genes, self.space.shape, strict=True)
        ]
        return self.space.number(mutated)
