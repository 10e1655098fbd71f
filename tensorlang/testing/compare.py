"""Comparison of arrays, with classic te's defaults."""

from __future__ import annotations

from typing import Any

import numpy as np


def assert_allclose(actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 1e-7, verbose: bool = True) -> None:
    """Raise AssertionError unless both have one shape and `|actual - desired| <= atol + rtol * |desired|`.

    Accepts NDArrays and NumPy arrays; equal infinities and NaNs agree. `verbose` shows the differing values.
    """
    got, wanted = np.asanyarray(actual), np.asanyarray(desired)
    np.testing.assert_allclose(got.shape, wanted.shape, err_msg="shapes differ")
    got, wanted = (a.astype(np.float64) if a.dtype.name == "bfloat16" else a for a in (got, wanted))
    np.testing.assert_allclose(got, wanted, rtol=rtol, atol=atol, verbose=verbose)
