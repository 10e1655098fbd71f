"""The schedules that the benchmark of stencils times: bit for bit what the loops as declared compute."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tensorlang
from benchmarks.stencils import STENCILS, Stencil


@pytest.mark.parametrize("tiled", [False, True], ids=["untiled", "tiled"])
@pytest.mark.parametrize("stencil", STENCILS, ids=lambda stencil: stencil.name)
def test_the_bits_are_those_of_the_declared_loops(stencil: Stencil, tiled: bool) -> None:
    edge, short = 45 if len(stencil.shape) == 2 else 30, replace(stencil, steps=5)
    results = []
    for plan in (stencil.tiled if tiled else stencil.untiled, lambda stage: None):
        arrays = short.fresh(edge)
        s, given = short.schedule(plan, edge)
        tensorlang.build(s, given)(*arrays)
        results.append(arrays)
    for got, wanted in zip(*results, strict=True):
        np.testing.assert_array_equal(got, wanted)
