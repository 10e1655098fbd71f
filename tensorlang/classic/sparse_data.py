"""`topi.sparse.utils`: matrices for tests of sparse operators."""

from __future__ import annotations

from typing import Any

import numpy as np


def random_bsr_matrix(
    m: int, n: int, bs_r: int, bs_c: int, density: float, dtype: str = "float32", seed: int = 42
) -> Any:
    """Return a random SciPy matrix of blocks `bs_r` by `bs_c`, at least `density` of whose elements are stored."""
    import scipy.sparse  # type: ignore[import-untyped]

    if min(bs_r, bs_c) < 1 or m % bs_r or n % bs_c:
        raise ValueError(f"blocks of {bs_r} by {bs_c} do not divide a matrix of {m} by {n}")
    rng = np.random.default_rng(seed)
    rows, columns = m // bs_r, n // bs_c
    count = int(np.ceil(density * rows * columns))
    places = np.sort(rng.choice(rows * columns, size=count, replace=False))
    starts = np.concatenate([[0], np.cumsum(np.bincount(places // columns, minlength=rows))])
    data = rng.standard_normal((count, bs_r, bs_c)).astype(dtype)
    indices, indptr = (places % columns).astype(np.int32), starts.astype(np.int32)
    return scipy.sparse.bsr_matrix((data, indices, indptr), shape=(m, n))
