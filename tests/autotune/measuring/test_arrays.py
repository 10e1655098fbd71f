"""The comparison with the reference: its fast path says yes only where the exact one does."""

from __future__ import annotations

from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]
import pytest

from tensorlang.autotune.measuring.arrays import Arguments, Arrays, _plainly_equal, difference
from tensorlang.autotune.measuring.flushing import cache_flusher

RTOL, ATOL = 1e-4, 1e-5


def _arrays(*outputs: Any) -> Arrays:
    return Arrays((), tuple(np.asarray(o) for o in outputs), RTOL, ATOL)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_fast_path_agrees_with_numpy(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    wanted = rng.uniform(-2, 2, 4000).astype(dtype)
    for scale in (0.0, 0.5, 0.98, 1.02, 2.0):
        got = (wanted + scale * (ATOL + RTOL * np.abs(wanted)) * rng.choice([-1, 1], wanted.size)).astype(dtype)
        right = bool(np.isclose(got.astype(float), wanted.astype(float), RTOL, ATOL).all())
        assert (difference(_arrays(wanted), [got]) == "") == right == (scale < 1)
        assert not _plainly_equal(got, wanted, _arrays(wanted)) or right
    assert _plainly_equal(wanted, wanted.copy(), _arrays(wanted))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3.0])
def test_one_wrong_element_is_found(value: float) -> None:
    wanted = np.zeros((5, 7), np.float32)
    got = wanted.copy()
    got[3, 4] = value
    assert f"1 of 35 elements; at [3, 4] {np.float32(value)} instead of 0.0" in difference(_arrays(wanted), [got])


def test_equal_infinities_and_nans_are_right() -> None:
    wanted = np.array([np.inf, -np.inf, np.nan, 1], np.float32)
    assert difference(_arrays(wanted), [wanted.copy()]) == ""
    assert difference(_arrays(wanted), [-wanted]) != ""


def test_integers_are_compared_exactly() -> None:
    wanted = np.arange(6, dtype=np.int32)
    assert difference(_arrays(wanted), [wanted.copy()]) == ""
    assert "1 of 6" in difference(_arrays(wanted), [np.where(wanted == 2, 9, wanted)])


@pytest.mark.parametrize("threads", [1, 2])
def test_a_flusher_is_made_once_and_leaves_our_affinity_alone(threads: int) -> None:
    flush = cache_flusher((1 << 10, 1 << 12), threads)
    before = psutil.Process().cpu_affinity()
    flush()
    assert psutil.Process().cpu_affinity() == before
    assert cache_flusher((1 << 10, 1 << 12), threads) is flush


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int8, np.uint8, np.int64, np.bool_])
def test_outputs_that_nobody_wrote_are_wrong(dtype: Any) -> None:
    wanted = np.ones((3, 5), dtype)
    wanted[1, 2] = 0
    arrays = _arrays(wanted)
    given = Arguments(arrays)
    given.outputs[0][...] = wanted  # by the candidate before
    given.renew()
    assert "14 of 15" in difference(arrays, given.outputs)


def test_what_a_kernel_overwrites_is_as_it_was() -> None:
    before, after = np.arange(4.0), np.arange(4.0) + 1
    arrays = Arrays((before,), (after,), RTOL, ATOL, (0,))
    given = Arguments(arrays)
    for _ in range(2):
        given.renew()
        given.args[0] += 1
        assert difference(arrays, given.outputs) == ""
    assert np.array_equal(before, np.arange(4.0))
