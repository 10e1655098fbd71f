"""Comparison of arrays, with classic te's defaults."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorlang import dtypes


def assert_allclose(actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 1e-7, verbose: bool = True) -> None:
    """Raise AssertionError unless both have one shape and `|actual - desired| <= atol + rtol * |desired|`.

    Accepts NDArrays and NumPy arrays; equal infinities and NaNs agree. `verbose` shows the differing values.
    """
    got, wanted = np.asanyarray(actual), np.asanyarray(desired)
    np.testing.assert_allclose(got.shape, wanted.shape, err_msg="shapes differ")
    names = [d.name for d in dtypes.TABLE.values() if d.is_extension]
    got, wanted = (a.astype(np.float64) if a.dtype.name in names else a for a in (got, wanted))
    np.testing.assert_allclose(got, wanted, rtol=rtol, atol=atol, verbose=verbose)
