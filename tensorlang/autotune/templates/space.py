"""The space of a template: its knobs, and the points that they span, by number and never listed."""

from __future__ import annotations

import hashlib
import json
import math
import random
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tensorlang.autotune.templates import candidates as c
from tensorlang.autotune.templates.config import Config, ConfigEntity
from tensorlang.autotune.templates.entity import Entity, SplitEntity
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.location import caller

Digits = npt.NDArray[np.int64]
Rows = npt.NDArray[np.float32]

LARGEST_TABLE = 4096
_WALKS = 64
"""Steps that a random walk tries where filters forbid some."""


@dataclass(frozen=True)
class Knob:
    """One knob: what it is, and what it may be set to; `extent` of the axis that it splits."""

    what: str
    candidates: Sequence[Entity]
    extent: int = -1

    def __len__(self) -> int:
        return len(self.candidates)

    def __getitem__(self, number: int) -> Entity:
        return self.candidates[number]

    def features(self, numbers: Digits) -> Rows:
        """A row of numbers for each chosen candidate."""
        if len(self) <= LARGEST_TABLE or not isinstance(self.candidates, c.Orders):  # others are listed anyway
            return self._table[numbers]
        return np.asarray([self.candidates[int(n)].features() for n in numbers], dtype=np.float32)

    @cached_property
    def _table(self) -> Rows:
        rows = [entity.features() for entity in self.candidates]
        if len({len(row) for row in rows}) > 1 or not rows[0]:  # no numbers, or not for all: which one it is must do
            rows = [(float(n),) for n in range(len(rows))]
        return np.asarray(rows, dtype=np.float32).reshape(len(rows), len(rows[0]))


class ConfigSpace(Config):
    """All configurations of a template; `len(space)` of them, `space.get(number)` is one.

    The first knob counts fastest, as in AutoTVM. `choose` sets each knob for the run that collects them. Filters over
    several knobs (`multi_filter`) leave some of the `range_length` numbers without a configuration.
    """

    def __init__(self, choose: Callable[[Knob], int] = lambda knob: 0, is_fallback: bool = False) -> None:
        super().__init__()
        self.is_fallback = is_fallback
        self._choose = choose
        self._knobs: dict[str, Knob] = {}
        self._filters: list[Callable[[Config], bool]] = []

    def _define(self, name: str, what: str, make: Callable[[], Sequence[Entity]], extent: int = -1) -> None:
        if name in self._knobs:
            raise DefinitionError(f"there is a knob {name!r} already: {self._knobs[name].what}", caller())
        try:
            knob = Knob(what, make(), extent)
        except DefinitionError as error:
            raise DefinitionError(error.message, caller()) from None
        if not len(knob):
            raise DefinitionError(f"knob {name!r} ({what}) has no candidate", caller())
        self._knobs[name] = knob
        self._entities[name] = knob[self._choose(knob)]

    def multi_filter(self, filter: Callable[[Config], bool]) -> None:
        self._filters.append(filter)
        self.__dict__.pop("_allowed", None)

    @property
    def space_map(self) -> Mapping[str, Knob]:
        """The knobs by name, in the order of their definition."""
        return self._knobs

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of candidates of each knob."""
        return tuple(len(knob) for knob in self._knobs.values())

    @cached_property
    def key(self) -> str:
        """A stable hash of what the knobs are: numbers of one space mean nothing in another."""
        text = json.dumps([[name, knob.what, len(knob)] for name, knob in self._knobs.items()])
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    @property
    def size(self) -> int:
        """How many combinations of candidates there are, however many (`len` ends at the machine's word)."""
        return math.prod(self.shape)

    range_length = size

    @property
    def dims(self) -> list[int]:
        """Number of candidates of each knob, as a list."""
        return list(self.shape)

    @cached_property
    def _allowed(self) -> range | list[int]:
        """The numbers that the filters allow."""
        every = range(self.size)
        return [n for n in every if self.allows(self.at(n))] if self._filters else every

    def __len__(self) -> int:
        return len(self._allowed)

    def subrange_length(self, start: int, end: int) -> int:
        """How many configurations have numbers from `start` up to, without, `end`."""
        if not 0 <= start <= end <= self.size:
            raise DefinitionError(f"the numbers of this space are 0 to {self.size}, got {start} to {end}", caller())
        return bisect_left(self._allowed, end) - bisect_left(self._allowed, start)

    def is_index_valid(self, index: int) -> bool:
        """Whether a number is that of a configuration."""
        return 0 <= index < self.size and (not self._filters or self.allows(self.at(index)))

    def get(self, index: int) -> ConfigEntity:
        """The configuration of a number; IndexError where there is none, or the filters do not allow it."""
        found = self.at(index)
        if not self.allows(found):
            raise IndexError(f"a multi_filter of this space does not allow the configuration of number {index}")
        return found

    def at(self, index: int) -> ConfigEntity:
        """The configuration of a number, whether or not the filters allow it."""
        entities = {name: self._knobs[name][digit] for name, digit in self.digits(index).items()}
        return ConfigEntity(index, entities)

    def get_next_index(self, index: int, n: int = 1, start: int | None = None, end: int | None = None) -> int | None:
        """The number of the n-th configuration after one (before it, for n < 0) within a range; None beyond it."""
        low, high = start or 0, self.size if end is None else end
        place = bisect_left(self._allowed, index) + n - (n > 0 and not self.is_index_valid(index))
        found = self._allowed[place] if 0 <= place < len(self._allowed) else None
        return found if found is not None and low <= found < high else None

    def get_rand_index(
        self, start: int | None = None, end: int | None = None, to_exclude: Collection[int] = ()
    ) -> int | None:
        """The number of a configuration at random, in a range and not among some; None when there is none."""
        low, high = (bisect_left(self._allowed, n) for n in (start or 0, self.size if end is None else end))
        while high - low > 4 * len(to_exclude):  # most are left: draw until one is
            found = self._allowed[random.randrange(low, high)]
            if found not in to_exclude:
                return found
        left = [n for n in self._allowed[low:high] if n not in to_exclude]
        return random.choice(left) if left else None

    def point2knob(self, point: int) -> list[int]:
        """The candidate of every knob in the configuration of a number."""
        return list(self.digits(point).values())

    def knob2point(self, knob: Sequence[int]) -> int:
        """The number of the configuration with these candidates."""
        return self.number(knob)

    def sample_ints(self, m: int) -> list[int]:
        """Numbers of `m` different configurations, or of all."""
        return [self._allowed[n] for n in random.sample(range(len(self)), min(m, len(self)))]

    def random_walk(self, point: int) -> int:
        """The number of a configuration that differs in one knob from that of a number."""
        knobs = self.point2knob(point)
        several = [n for n, base in enumerate(self.shape) if base > 1]
        for _ in range(_WALKS if several else 0):
            moved, where = list(knobs), random.choice(several)
            moved[where] = random.choice([n for n in range(self.shape[where]) if n != knobs[where]])
            if self.is_index_valid(self.number(moved)):
                return self.number(moved)
        return point

    def digits(self, index: int) -> dict[str, int]:
        """The candidate of every knob in the configuration of a number."""
        if not 0 <= index < self.size:
            raise IndexError(f"the space has {self.size} configurations, there is none of number {index}")
        found = {}
        for name, knob in self._knobs.items():
            index, found[name] = divmod(index, len(knob))
        return found

    def number(self, digits: Sequence[int]) -> int:
        """The number of the configuration with these candidates, knob by knob."""
        index = 0
        for digit, base in zip(reversed(digits), reversed(self.shape), strict=True):
            index = index * base + int(digit)
        return index

    def features(self, digits: Digits) -> Rows:
        """One row for each configuration, given as rows of candidate numbers."""
        columns = [knob.features(digits[:, n]) for n, knob in enumerate(self._knobs.values())]
        return np.ascontiguousarray(np.concatenate(columns or [np.zeros((len(digits), 1), np.float32)], axis=1))

    def sample(self, rng: np.random.Generator, count: int) -> Digits:
        """Configurations at random, as rows of candidate numbers."""
        columns = [rng.integers(0, base, count) for base in self.shape]
        return np.stack(columns, axis=1) if columns else np.zeros((count, 0), dtype=np.int64)

    def allows(self, config: ConfigEntity) -> bool:
        """Whether every filter over several knobs allows a configuration."""
        return all(keep(config) for keep in self._filters)

    def __setitem__(self, name: str, entity: Entity) -> None:
        """Set a knob, where the template was called plainly."""
        self._entities[name] = entity

    def fallback_split(self, name: str, constraints: Sequence[int]) -> None:
        """Set a split to the largest divisors within limits, innermost first; -1 is no limit."""
        knob = self[name]
        if not isinstance(knob, SplitEntity) or len(constraints) != len(knob.size):
            raise DefinitionError(f"{name} is no split into {len(constraints)} parts", caller())
        left = self._knobs[name].extent
        sizes: list[int] = []
        for limit in reversed(constraints):
            sizes.append(max(d for d in c.divisors(left) if limit == -1 or d <= limit))
            left //= sizes[-1]
        self[name] = SplitEntity(sizes[::-1])

    def __repr__(self) -> str:
        numbered = enumerate(self._knobs.items())
        knobs = "".join(f"\n  {n:>2} {name}: {knob.what}, {len(knob)}" for n, (name, knob) in numbered)
        return f"ConfigSpace of {self.size}:{knobs}"
