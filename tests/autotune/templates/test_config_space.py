"""The numbers of a space of configurations, with and without filters."""

from __future__ import annotations

import pytest

from tensorlang import autotvm
from tensorlang.errors import DefinitionError


def space(filtered: bool) -> autotvm.ConfigSpace:
    """Three by five configurations; those of an odd sum are filtered out."""
    made = autotvm.ConfigSpace()
    made.define_knob("a", [0, 1, 2])
    made.define_knob("b", [0, 1, 2, 3, 4])
    if filtered:
        made.multi_filter(filter=lambda cfg: (cfg["a"].val + cfg["b"].val) % 2 == 0)
    return made


def test_numbers_without_filters() -> None:
    cfg = space(False)
    assert (len(cfg), cfg.range_length, cfg.dims, cfg.subrange_length(2, 9)) == (15, 15, [3, 5], 7)
    assert cfg.point2knob(7) == [1, 2] and cfg.knob2point([1, 2]) == 7
    assert cfg.get_next_index(3) == 4 and cfg.get_next_index(14) is None and cfg.get_next_index(3, -4) is None
    assert sorted(cfg.sample_ints(99)) == list(range(15))


def test_numbers_that_filters_leave() -> None:
    cfg = space(True)
    left = [n for n in range(cfg.range_length) if cfg.is_index_valid(n)]
    assert left == [n for n in range(15) if (n % 3 + n // 3) % 2 == 0]
    assert len(cfg) == len(left) and cfg.subrange_length(0, 5) == sum(n < 5 for n in left)
    assert [cfg.get(n).index for n in left] == left
    with pytest.raises(IndexError, match="does not allow the configuration of number 1"):
        cfg.get(1)
    assert [cfg.get_next_index(n) for n in (0, 1)] == [left[1], left[1]] and cfg.get_next_index(3, -1) == left[1]
    assert cfg.get_next_index(left[-1]) is None and cfg.get_next_index(0, end=left[1]) is None
    assert set(cfg.sample_ints(5)) <= set(left)
    drawn = {cfg.get_rand_index(2, 9, to_exclude=left[:2]) for _ in range(40)}
    assert drawn == {n for n in left[2:] if n < 9} and cfg.get_rand_index(0, 2, [left[0]]) is None
    walked = {cfg.random_walk(left[0]) for _ in range(60)}
    assert walked and all(
        sum(x != y for x, y in zip(cfg.point2knob(n), cfg.point2knob(left[0]), strict=True)) == 1 for n in walked
    )
    with pytest.raises(DefinitionError, match="the numbers of this space are 0 to 15"):
        cfg.subrange_length(3, 16)
