"""What this machine can do, as it was measured: operations a second, and bytes a second of each cache and of memory.

Source of the model: Williams, Waterman and Patterson, Roofline, CACM 2009, with a roof for each cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tensorlang import config
from tensorlang.autotune.measuring.jobs import undisturbed_rates
from tensorlang.dataclass import dataclass
from tensorlang.runtime.threads import available_cores
from tensorlang.target.rates import FMA, MEMORY, Rates, levels
from tensorlang.target.spec import Target


@dataclass(frozen=True, slots=True)
class Limit:
    """Seconds at least, and what binds: "compute", a cache ("L2") or "memory"."""

    seconds: float
    binds: str


@dataclass(frozen=True, slots=True)
class Machine:
    """What this machine does with some threads; `caches`: levels with bytes of all of them, the nearest first.

    `registers`: bytes of the vector registers of a core.
    """

    rates: Rates
    caches: Sequence[tuple[str, float]]
    registers: float = 2048

    @classmethod
    def of(cls, target: Target, most: int | None = None) -> Machine:
        """The machine as it was measured, now or before, with the threads of a target, or `most` of them."""
        threads = min(target.cores, available_cores(), most or target.cores)
        sizes = [size * (1 if n == len(target.caches) - 1 else threads) for n, size in enumerate(target.caches)]
        rates = _with_units(undisturbed_rates(threads, config.get("cache")), undisturbed_rates(1, config.get("cache")))
        return cls(rates, list(zip(levels(target), sizes, strict=False)), target.register_bytes)

    def operations(self, kinds: Iterable[str]) -> float:
        """Operations a second, by the fastest instructions that arrays of some dtypes allow."""
        return 1e9 * self.rates.operations(kinds)

    def bandwidth(self, level: str) -> float:
        """Bytes a second that are read from a cache, or from memory."""
        return 1e9 * self.rates.values[level]

    def beyond(self) -> list[tuple[float, str]]:
        """The bytes of each cache, and the level that what it does not hold comes from."""
        names = [*(name for name, _ in self.caches[1:]), MEMORY]
        return [(size, name) for (_, size), name in zip(self.caches, names, strict=True)]


def _with_units(rates: Rates, alone: Rates) -> Rates:
    """The rates of several threads, which are measured of one unit of a core, with those of its other units."""
    if rates.threads == 1:
        return rates
    common = [name for name in rates.values if name.startswith(FMA) and name in alone.values]
    times = max((rates.values[name] / alone.values[name] for name in common), default=1.0)
    others = {name: times * rate for name, rate in alone.values.items() if " " in name}
    return replace(rates, values={**others, **rates.values})
