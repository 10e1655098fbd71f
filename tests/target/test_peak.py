"""The measured limits of this machine are of a plausible size."""

from __future__ import annotations

import pytest

from tensorlang.errors import ArgumentError
from tensorlang.target import measure_peak


def test_peak() -> None:
    peak = measure_peak()
    assert set(peak) == {"gflops", "l2_gbs", "last_cache_gbs", "memory_gbs"}
    assert 1 < peak["gflops"] < 2000
    assert 1 < peak["memory_gbs"] < 2000
    assert 1 < peak["l2_gbs"] < 5000


def test_threads_are_counted() -> None:
    with pytest.raises(ArgumentError, match="at least 1, got 0"):
        measure_peak(0)
