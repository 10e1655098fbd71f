"""The operators of `benchmarks.vocabulary` that NumPy has, and SciPy's sparse product."""

from __future__ import annotations

import importlib.util

import numpy as np

from benchmarks.peers.serve import Array, Builder, Call, Given, Unsupported


def topk(given: Given) -> Call:
    """Parted first, then sorted."""
    x, k = given["x"][0], given.options["k"]

    def call() -> Array:
        largest = np.argpartition(x, -k)[-k:]
        return np.asarray(largest[np.argsort(-x[largest])][None])

    return call


def cumsum(given: Given) -> Call:
    """Into an array."""
    x = given["x"]
    made = np.empty_like(x)
    return lambda: np.cumsum(x, axis=1, out=made)


def argsort(given: Given) -> Call:
    """By its sort for vectors."""
    x = given["x"]
    return lambda: np.argsort(x, axis=1)


def scatter_add(given: Given) -> Call:
    """Unbuffered, which is the only one that is right here."""
    data, indices, updates = (given[name] for name in ("data", "indices", "updates"))
    columns = np.arange(data.shape[1])

    def call() -> Array:
        made = data.copy()
        np.add.at(made, (indices, columns), updates)
        return made

    return call


def sparse_dense(given: Given) -> Call:
    """SciPy's, on one core."""
    if importlib.util.find_spec("scipy") is None:
        raise Unsupported("SciPy is not installed")
    from scipy.sparse import csr_array  # type: ignore[import-untyped]

    parts, dense = (given["data"], given["indices"], given["indptr"]), given["dense"]
    matrix = csr_array(parts, shape=(len(parts[2]) - 1, len(dense)))
    return lambda: matrix @ dense


BUILDERS: dict[str, Builder] = {
    "topk": topk,
    "cumsum": cumsum,
    "argsort": argsort,
    "scatter_add": scatter_add,
    "sparse_dense": sparse_dense,
}
