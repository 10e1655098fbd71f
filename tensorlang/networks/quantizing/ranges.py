"""How large the numbers of an array are, over all samples, and the range of them that 8 bits are to hold."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tensorlang.dataclass import dataclass
from tensorlang.networks.network import Array

BINS = 2048
"""Bins of a histogram on each side of 0."""
_LEAST_EXPONENT = -100
"""Smaller numbers than 2 to the power of this are 0."""
_STEPS = 16
"""Ends of a range are tried this many times in the bins of as many as there are levels."""
LEAST_SCALE = 2.0**-120
"""Numbers whose scale would be smaller are 0: neither it nor its reciprocal may leave the range of float32."""
_NOTHING = 1e-12
"""The likelihood of what a range does not have."""

Range = tuple[float, float]


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """Numbers counted in bins of equal width about 0; `low` and `high` are the smallest and the largest of them.

    Bins are `2 ** exponent / BINS` wide, and 2 ** exponent is the least power of two above all magnitudes. So the
    counts depend on the numbers alone, and not on the order in which they came.
    """

    exponent: int
    counts: Array
    low: float
    high: float

    def joined(self, other: Histogram) -> Histogram:
        """The histogram of the numbers of both."""
        exponent = max(self.exponent, other.exponent)
        counts = self._counts(exponent) + other._counts(exponent)
        return Histogram(exponent, counts, min(self.low, other.low), max(self.high, other.high))

    @property
    def width(self) -> float:
        """The width of a bin."""
        return math.ldexp(1.0, self.exponent) / BINS

    def _counts(self, exponent: int) -> Array:
        """The counts in bins of another width, a larger power of two: so many neighbours become one."""
        together = min(1 << (exponent - self.exponent), BINS)
        made = np.zeros_like(self.counts)
        few = self.counts.reshape(-1, together).sum(1)
        start = BINS - BINS // together
        made[start : start + len(few)] = few
        return made


def histogram_of(numbers: Array) -> Histogram:
    """Count finite floats, of which there is one at least."""
    low, high = float(numbers.min()), float(numbers.max())
    exponent = max(_LEAST_EXPONENT, math.frexp(max(-low, high))[1])
    places = np.floor(numbers.ravel() * np.float64(BINS / math.ldexp(1.0, exponent))).astype(np.int64)
    return Histogram(exponent, np.bincount(places + BINS, minlength=2 * BINS), low, high)


def least_and_greatest(found: Histogram, percentile: float) -> Range:
    """All numbers."""
    return found.low, found.high


def by_percentile(found: Histogram, percentile: float) -> Range:
    """So many percent of the numbers, with as many of the others below as above; ends of bins."""
    cut = (1 - percentile / 100) / 2
    shares = np.cumsum(found.counts) / found.counts.sum()
    first, last = (int(np.searchsorted(shares, share)) for share in (cut, 1 - cut))
    low, high = ((edge - BINS) * found.width for edge in (first, last + 1))
    return max(low, found.low), min(high, found.high)


def by_entropy(found: Histogram, percentile: float) -> Range:
    """The range whose levels tell most of how the numbers are distributed: of least Kullback-Leibler divergence.

    Magnitudes are cut off at an end, and those beyond count as the end; what levels keep of this distribution is
    compared with it. What lies next to 0 counts no more than its neighbours: zeros are exact at any range. Source:
    S. Migacz, 8-bit Inference with TensorRT, GTC 2017; zeros as NVIDIA's pytorch-quantization has them.
    """
    sizes = found.counts[BINS:] + found.counts[:BINS][::-1]
    sizes[0] = min(sizes[0], sizes[1])
    levels = 255 if found.low >= 0 or found.high <= 0 else 128
    used = int(np.flatnonzero(sizes)[-1]) + 1 if sizes.any() else 1
    ends = [*range(levels, used, max(1, levels // _STEPS)), used]
    end = min(ends, key=lambda end: (divergence(sizes, end, levels), -end)) * found.width
    return max(-end, found.low), min(end, found.high)


def divergence(sizes: Array, end: int, levels: int) -> float:
    """How much is lost where so many bins become `levels`, those behind them being counted in the last of them."""
    inside = sizes[:end].astype(np.float64)
    level = np.arange(end) * levels // end
    whole = inside.copy()
    whole[-1] += sizes[end:].sum()
    filled = whole > 0
    each = np.bincount(level, inside, levels) / np.maximum(np.bincount(level, filled, levels), 1)
    p, q = whole[filled] / whole.sum(), each[level][filled] / max(inside.sum(), 1.0)
    return float((p * np.log(p / np.maximum(q, _NOTHING))).sum())


METHODS: dict[str, Callable[[Histogram, float], Range]] = {
    "minmax": least_and_greatest,
    "percentile": by_percentile,
    "entropy": by_entropy,
}
"""What takes a range from a histogram, by name."""


@dataclass(frozen=True, slots=True)
class Levels:
    """256 levels, `(number - zero) * scale` for the numbers of uint8; 0 is one of them."""

    scale: float
    zero: int

    def of(self, number: float) -> int:
        """The level next to a number."""
        return int(np.clip(np.rint(number / self.scale) + self.zero, 0, 255))


def levels_of(low: float, high: float) -> Levels:
    """Levels from `low` to `high`, moved and widened so that 0 is a level."""
    low, high = min(low, 0.0), max(high, 0.0)
    scale = float(np.float32((high - low) / 255))
    scale = scale if scale >= LEAST_SCALE else 1.0
    return Levels(scale, int(np.clip(np.rint(-low / scale), 0, 255)))
