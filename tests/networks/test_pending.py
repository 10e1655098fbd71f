"""Weights that are laid out when they are asked for: once, in order, under the shape that was told."""

from __future__ import annotations

import numpy as np

from tensorlang.networks.network import Array
from tensorlang.networks.pending import Pending

ROWS = np.arange(6.0).reshape(2, 3)


def test_changes_are_made_once_in_their_order_when_they_are_asked_for() -> None:
    done: list[str] = []

    def turned(array: Array) -> Array:
        done.append("turned")
        return array.T

    def doubled(array: Array) -> Array:
        done.append("doubled")
        return array * 2

    held = Pending({"a": ROWS, "b": ROWS})
    held.later("a", turned, (3, 2))
    held.later("a", doubled)
    assert held.shape("a") == (3, 2) and held.shape("b") == (2, 3)
    copy = Pending(held)
    assert "a" in held and [*held] == ["a", "b"] and len(held) == 2 and not done
    np.testing.assert_array_equal(held["a"], ROWS.T * 2)
    assert held["a"] is held["a"] and done == ["turned", "doubled"]
    np.testing.assert_array_equal(copy.pop("a"), ROWS.T * 2)  # a copy has its own
    assert done == ["turned", "doubled"] * 2 and "a" not in copy


def test_an_array_in_the_place_of_another_has_nothing_pending() -> None:
    held = Pending({"a": ROWS})
    held.later("a", lambda array: array[:1], (1, 3))
    held["a"] = ROWS
    assert held.shape("a") == (2, 3) and held["a"] is ROWS
