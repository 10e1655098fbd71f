"""isl's lexmin loses all points of some sets: a counter-example is found all the same."""

from __future__ import annotations

from typing import Any

import pytest

from tensorlang import te
from tensorlang.errors import IllegalParallel
from tensorlang.polyhedral import isl
from tensorlang.testing.ordered_programs import ordered_programs
from tensorlang.testing.soak.drawing import Draws
from tensorlang.testing.traces import schedules


def test_a_set_with_halved_coordinates() -> None:
    where = "2i = n - 3 and 0 <= n <= 5 and j <= n - 2 and 2j >= n - 1 and 0 <= k <= 1"
    points = isl.make_set(f"{{ [n, k, i, j] : {where} }}")
    assert isl.lexicographic_minimum(points) == [3, 0, 0, 1]


def test_a_race_between_halves() -> None:
    @te.hybrid.script
    def halves(a: Any, n: Any) -> None:
        for i in range(1, n):
            for j in range(n - i):
                a[j // 2, 2 * j + 1] = a[i // 2, n - 1 - i] + 1.0

    n = te.var("n")
    a = te.placeholder((2 * n + 3, 2 * n + 3), name="A")
    s = te.create_schedule(halves(a, n).op)
    with pytest.raises(IllegalParallel) as caught:
        s["halves"].parallel("j")
    assert caught.value.witness is not None


def test_a_drawn_set_of_which_coordinates_are_not_told_either() -> None:
    """Its text is a set that isl understands: the seed makes it as it was found."""
    draws = Draws(4169812066)
    case = draws.draw(ordered_programs(data=draws.random.random() < 0.5))
    draws.draw(schedules(case.outputs))
