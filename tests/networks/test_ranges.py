"""Histograms and the ranges that are taken from them, beside straightforward references."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorlang.networks.quantizing.ranges import (
    BINS,
    METHODS,
    Histogram,
    by_entropy,
    by_percentile,
    divergence,
    histogram_of,
    least_and_greatest,
    levels_of,
)
from tests.thoroughness import draws

PARTS = st.lists(
    st.tuples(st.integers(-140, 120), st.integers(1, 40), st.integers(0, 99), st.booleans()), min_size=1, max_size=4
)


def numbers(exponent: int, count: int, seed: int, above: bool) -> np.ndarray:
    """Numbers about a power of two, of both signs or above 0."""
    made = np.ldexp(np.random.default_rng(seed).standard_normal(count), exponent)
    return (np.abs(made) if above else made).astype(np.float32)


@settings(max_examples=draws(30, 500), deadline=None)
@given(PARTS)
def test_a_histogram_is_that_of_all_numbers_whatever_their_order(parts: list[tuple[int, int, int, bool]]) -> None:
    arrays = [numbers(*part) for part in parts]
    whole = histogram_of(np.concatenate(arrays))
    for order in (arrays, arrays[::-1]):
        joined: Histogram = histogram_of(order[0])
        for array in order[1:]:
            joined = joined.joined(histogram_of(array))
        assert (joined.exponent, joined.low, joined.high) == (whole.exponent, whole.low, whole.high)
        np.testing.assert_array_equal(joined.counts, whole.counts)
    edges = np.arange(-BINS, BINS + 1) * whole.width
    np.testing.assert_array_equal(np.histogram(np.concatenate(arrays), edges)[0], whole.counts)


def test_zeros_alone_have_a_range() -> None:
    found = histogram_of(np.zeros(5, np.float32))
    for method in METHODS.values():
        assert method(found, 99.9) == (0, 0)
    assert levels_of(0, 0).of(0.0) == levels_of(0, 0).zero


@pytest.mark.parametrize("percentile", [50.0, 99.0, 99.9, 100.0])
@pytest.mark.parametrize("moved", [0.0, 3.0, 50.0])
def test_a_percentile_is_that_of_sorted_numbers(percentile: float, moved: float) -> None:
    x = (np.random.default_rng(0).standard_normal(20000) + moved).astype(np.float32)
    found = histogram_of(x)
    wanted = np.quantile(x, [(1 - percentile / 100) / 2, (1 + percentile / 100) / 2], method="inverted_cdf")
    np.testing.assert_allclose(by_percentile(found, percentile), wanted, atol=1.5 * found.width)
    assert by_percentile(found, 100) == least_and_greatest(found, 0) == (x.min(), x.max())


def slow_divergence(sizes: list[int], end: int, levels: int) -> float:
    """The same as in the slides of Migacz (GTC 2017), bin by bin."""
    whole = [float(n) for n in sizes[:end]]
    whole[-1] += sum(sizes[end:])
    kept = [0.0] * end
    for level in range(levels):
        bins = [b for b in range(end) if b * levels // end == level]
        filled = [b for b in bins if whole[b] > 0]
        for b in filled:
            kept[b] = sum(sizes[c] for c in bins) / len(filled)
    p, q = ([n / total for n in part] for part, total in ((whole, sum(whole)), (kept, float(sum(sizes[:end])))))
    return sum(a * math.log(a / max(b, 1e-12)) for a, b in zip(p, q, strict=True) if a)


@settings(max_examples=draws(40, 500), deadline=None)
@given(st.lists(st.integers(0, 9), min_size=4, max_size=30), st.integers(2, 4), st.data())
def test_divergence_is_that_of_distributions(sizes: list[int], levels: int, data: st.DataObject) -> None:
    end = data.draw(st.integers(levels, len(sizes)))
    if not any(sizes[:end]):
        return
    found = divergence(np.array(sizes), end, levels)
    assert found == pytest.approx(slow_divergence(sizes, end, levels), abs=1e-9)


def test_entropy_cuts_off_what_is_far_out() -> None:
    """All of a flat distribution is kept, and zeros change nothing."""
    rng = np.random.default_rng(1)
    bell = rng.standard_normal(50000).astype(np.float32)
    low, high = by_entropy(histogram_of(np.append(bell, np.float32(60))), 0)
    assert -low <= -bell.min() + 0.1
    assert 3 < high < 30
    flat = rng.uniform(-1, 2, 50000).astype(np.float32)
    assert by_entropy(histogram_of(flat), 0) == (flat.min(), flat.max())
    above = np.maximum(bell, 0)
    assert by_entropy(histogram_of(above), 0) == by_entropy(histogram_of(np.append(above, np.zeros(10**6))), 0)


@settings(max_examples=draws(50, 1000), deadline=None)
@given(st.floats(-1e6, 1e6, width=32), st.floats(0, 1e6, width=32))
def test_zero_is_a_level_and_ends_are_near_one(low: float, span: float) -> None:
    levels = levels_of(low, low + span)
    assert 0 <= levels.zero <= 255
    for number in (0.0, low, low + span):
        back = (levels.of(number) - levels.zero) * levels.scale
        assert back == pytest.approx(number, abs=1.001 * levels.scale)
        assert number or back == 0
