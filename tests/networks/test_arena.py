"""Arrays that are in use at the same time never share memory."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tensorlang.networks.arena import Life, aligned, arena_of
from tensorlang.runtime.memory import ALIGNMENT

LIVES = st.lists(st.builds(lambda n, a, b: Life(n, min(a, b), max(a, b)), *[st.integers(0, 300)] * 3), max_size=12)


@given(LIVES)
def test_what_lives_at_once_lies_apart(lives: list[Life]) -> None:
    named = {str(k): life for k, life in enumerate(lives)}
    arena = arena_of(named)
    for a, b in combinations(named, 2):
        if named[a].first <= named[b].last and named[b].first <= named[a].last:
            x, y = arena.places[a], arena.places[b]
            assert x + named[a].size <= y or y + named[b].size <= x
    assert all(place % ALIGNMENT == 0 for place in arena.places.values())
    assert all(arena.places[name] + life.size <= arena.size for name, life in named.items())


def test_neighbours_of_a_chain_take_turns() -> None:
    chain = {str(k): Life(1000, k, k + 1) for k in range(10)}
    assert arena_of(chain).size == 2 * 1024


@given(st.integers(0, 63), st.sampled_from(["float32", "int8", "float64"]))
def test_arrays_begin_with_a_line_of_the_cache(offset: int, dtype: str) -> None:
    items = np.arange(24, dtype=dtype)
    shifted = np.zeros(items.nbytes + 64, np.uint8)[offset : offset + items.nbytes].view(dtype).reshape(2, 12)
    shifted[...] = items.reshape(2, 12)
    array = aligned(shifted)
    assert array.ctypes.data % ALIGNMENT == 0 and array.dtype == dtype
    np.testing.assert_array_equal(array, shifted)
    assert aligned(array) is array
