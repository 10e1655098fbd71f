"""The measured limits of this machine are of a plausible size, and better ones of earlier are not forgotten."""

from __future__ import annotations

import pytest

from tensorlang import config
from tensorlang.errors import ArgumentError
from tensorlang.runtime.threads import available_cores
from tensorlang.target import measure_peak, measure_rates, parse
from tensorlang.target.rates import CLOCK, core_of, keep, recall


def test_peak() -> None:
    peak = measure_peak()
    assert set(peak) >= {"gflops", "l1_gbs", "l2_gbs", "last_cache_gbs", "memory_gbs"}
    assert 1 < peak["gflops"] < 2000
    assert 1 < peak["memory_gbs"] < 2000
    assert 1 < peak["l2_gbs"] < 5000


def test_threads_are_counted() -> None:
    with pytest.raises(ArgumentError, match="at least 1, got 0"):
        measure_peak(0)
    with pytest.raises(ArgumentError, match=f"may use {available_cores()} CPUs, and 999 threads"):
        measure_peak(999)


def test_units_begin_a_plausible_number_of_instructions_in_a_cycle() -> None:
    rates, target = measure_rates(), parse("llvm")
    assert 0.3 < rates.values[CLOCK] < 8
    counts = rates.a_cycle()
    assert {f"fma float32x{target.lanes(32)}", f"fma float64x{target.lanes(64)}"} <= set(counts)
    assert all(0.05 < count < 5 for count in counts.values())
    core = core_of(rates, target)
    assert core is not None
    assert core.fma in (0.5, 1, 2, 3, 4)


def test_a_better_rate_of_earlier_counts_and_is_kept() -> None:
    """Of loads, which no other rate is held against: on a busy machine, a bandwidth may come out as impossible."""
    target = parse("llvm")
    loads = f"load float32x{target.lanes(32)}"
    better = 1.05 * measure_rates().values[loads]
    keep(target, 1, {**recall(target, 1), loads: better})
    again = measure_rates()
    assert again.values[loads] >= better
    assert recall(target, 1)[loads] == again.values[loads]
    keep(target, 1, {})
    with config.override(cache=False):
        assert recall(target, 1) == {}
