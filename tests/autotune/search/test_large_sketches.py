"""Sketches of many stages: more candidates than a machine's word counts, and limits on every stage."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.autotune.search.sketch import Sketch
from tensorlang.schedules.room import Constraint

from ..fakes import FakeTrace, matmul_nest

STAGES = 24


def _sketch(stages: int = STAGES) -> Sketch:
    """Of every stage three decisions, of which one candidate in sixteen is allowed."""
    knobs = {f"S{n}_{name}": tuple(range(1, 9)) for n in range(stages) for name in ("rows", "width", "block")}
    limits = tuple(
        Constraint(
            f"the tile of S{n} is small",
            lambda v, p=f"S{n}_": (v[f"{p}rows"] * v[f"{p}width"] <= 4) & (v[f"{p}block"] <= 4),  # type: ignore[misc]
            f"S{n}_",
        )
        for n in range(stages)
    )
    return Sketch("many", FakeTrace(), knobs, limits, lambda v, count: (matmul_nest(np.ones(count), np.ones(count)),))


def test_a_sketch_of_many_stages_has_candidates() -> None:
    sketch = _sketch()
    assert sketch.size > 2**200
    rows = sketch.sample(np.random.default_rng(0), 256)
    assert len(rows) == 256
    assert sketch.allowed(rows).all()
    assert len({tuple(row) for row in rows.tolist()}) == 256
    for column in rows.T:  # decisions are drawn, and not only copied
        assert len(np.unique(column)) >= 3


@pytest.mark.parametrize("stages", [2, STAGES])
def test_numbers_name_candidates(stages: int) -> None:
    sketch = _sketch(stages)
    rows = sketch.sample(np.random.default_rng(1), 64)
    numbers = sketch.numbers(rows)
    assert len(set(numbers.tolist())) == len(rows)
    assert all(0 <= number < sketch.size for number in numbers.tolist())
    assert np.array_equal(sketch.unravel(numbers), rows)
