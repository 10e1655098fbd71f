"""The PolyBench kernels: right as plain Python, and on every target what they are as plain Python."""

from __future__ import annotations

import numpy as np
import pytest

from examples.polybench import KERNELS
from examples.polybench.case import Arrays, Case

SUITE = """correlation covariance gemm gemver gesummv symm syr2k syrk trmm 2mm 3mm atax bicg doitgen mvt cholesky durbin
gramschmidt lu ludcmp trisolv deriche floyd-warshall nussinov adi fdtd-2d heat-3d jacobi-1d jacobi-2d seidel-2d"""

kernels = pytest.mark.parametrize("case", KERNELS.values(), ids=KERNELS)


def obeys(case: Case, given: Arrays, got: Arrays) -> bool:
    """Whether the results fit the law of the kernel."""
    return all(np.allclose(left, right, rtol=1e-9, atol=1e-10) for left, right in case.law(given, got))


def test_all_thirty_kernels_are_here() -> None:
    assert list(KERNELS) == SUITE.split()


@kernels
@pytest.mark.parametrize("seed", range(3))
def test_plain_python_obeys_the_law(case: Case, seed: int) -> None:
    given = case.arrays(case.sizes, np.random.default_rng(seed))
    assert obeys(case, given, case.run(case.sizes, given))


@kernels
def test_the_law_sees_every_element(case: Case) -> None:
    given = case.arrays(case.sizes, np.random.default_rng(0))
    got = case.run(case.sizes, given)
    for name, array in got.items():
        for place in np.ndindex(array.shape):
            wrong = array.copy()
            wrong[place] += 1
            assert not obeys(case, given, {**got, name: wrong}), f"{name}{list(place)} can be anything"
