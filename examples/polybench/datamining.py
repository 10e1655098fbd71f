"""Data mining: statistics of the columns of a table."""

from __future__ import annotations

import numpy as np

from examples.polybench.case import Array, Arrays, Case, Mistake, Pairs, Size, Tensor, as_vectors
from tensorlang import te
from tensorlang.errors import IllegalOrder, IllegalParallel
from tensorlang.schedule import Schedule


@te.hybrid.script
def correlation(m: Size, n: Size, data: Tensor) -> Tensor:
    """How the m columns of n samples vary together, each scaled to deviation one."""
    mean = te.allocate((m,), "float64")
    deviation = te.allocate((m,), "float64")
    corr = te.output_tensor((m, m), "float64")
    count = te.cast(n, "float64")
    for j in range(m):
        mean[j] = 0.0
        for i in range(n):
            mean[j] += data[i, j]
        mean[j] /= count
    for j in range(m):
        deviation[j] = 0.0
        for i in range(n):
            deviation[j] += (data[i, j] - mean[j]) * (data[i, j] - mean[j])
        deviation[j] /= count
        deviation[j] = te.sqrt(deviation[j])
        deviation[j] = 1.0 if deviation[j] <= 0.1 else deviation[j]
    for i in range(n):
        for j in range(m):
            data[i, j] -= mean[j]
            data[i, j] /= te.sqrt(count) * deviation[j]
    for i in range(m):
        corr[i, i] = 1.0
        for j in range(i + 1, m):
            corr[i, j] = 0.0
            for k in range(n):
                corr[i, j] += data[k, i] * data[k, j]
            corr[j, i] = corr[i, j]
    return data, corr


@te.hybrid.script
def covariance(m: Size, n: Size, data: Tensor) -> Tensor:
    """How the m columns of n samples vary together."""
    mean = te.allocate((m,), "float64")
    cov = te.output_tensor((m, m), "float64")
    for j in range(m):
        mean[j] = 0.0
        for i in range(n):
            mean[j] += data[i, j]
        mean[j] /= n
    for i in range(n):
        for j in range(m):
            data[i, j] -= mean[j]
    for i in range(m):
        for j in range(i, m):
            cov[i, j] = 0.0
            for k in range(n):
                cov[i, j] += data[k, i] * data[k, j]
            cov[i, j] /= n - 1
            cov[j, i] = cov[i, j]
    return data, cov


def samples(drawn: Arrays) -> Arrays:
    """Columns of different means and deviations; the last one is constant."""
    data = drawn["data"]
    data *= np.arange(1, data.shape[1] + 1)
    data[:, -1] = 3.0
    return {"data": data}


def _centred(data: Array) -> Array:
    centred: Array = data - np.mean(data, axis=0)
    return centred


def correlation_law(given: Arrays, got: Arrays) -> Pairs:
    """NumPy's correlation where it is defined; a constant column is correlated with itself only."""
    moving = np.corrcoef(given["data"][:, :-1], rowvar=False)
    wanted = np.eye(given["data"].shape[1])
    wanted[:-1, :-1] = moving
    yield got["corr"], wanted
    deviation = np.std(given["data"], axis=0)
    deviation[-1] = 1.0
    yield got["data"], _centred(given["data"]) / deviation / np.sqrt(len(given["data"]))


def covariance_law(given: Arrays, got: Arrays) -> Pairs:
    """NumPy's covariance."""
    yield got["cov"], np.cov(given["data"], rowvar=False)
    yield got["data"], _centred(given["data"])


def correlation_schedule(s: Schedule) -> None:
    """Rows and columns in parallel; the table is scaled by vectors."""
    stage = s["correlation"]
    stage.parallel("j")
    stage.parallel("j_1")
    stage.parallel("i_2")
    as_vectors(stage, "j_2")
    stage.parallel("i_3")


def covariance_schedule(s: Schedule) -> None:
    """Rows and columns in parallel; the table is centred by vectors."""
    stage = s["covariance"]
    stage.parallel("j")
    stage.parallel("i_1")
    as_vectors(stage, "j_1")
    stage.parallel("i_2")


_SHAPES = {"data": ("n", "m")}
_SIZES = {"m": 7, "n": 10}

CASES = (
    Case(
        name="correlation",
        script=correlation,
        shapes=_SHAPES,
        sizes=_SIZES,
        outputs=("data", "corr"),
        law=correlation_law,
        schedule=correlation_schedule,
        mistakes={
            "the sum of a column at once": Mistake(
                lambda s: s["correlation"].parallel("i_1"),
                IllegalParallel,
                "reduction",
                "correlation.deviation[0]",
                (0, 1),
            ),
        },
        prepare=samples,
    ),
    Case(
        name="covariance",
        script=covariance,
        shapes=_SHAPES,
        sizes=_SIZES,
        outputs=("data", "cov"),
        law=covariance_law,
        schedule=covariance_schedule,
        mistakes={
            "the products before the table is centred": Mistake(
                lambda s: s["covariance"].fuse_with("i_1", "i_2"), IllegalOrder, "flow", "data[1, 0]"
            ),
        },
        prepare=samples,
    ),
)
