"""What a run by day leaves out: no value of a parameter, and no case that is asked for by name."""

from __future__ import annotations

from itertools import pairwise, product

import pytest

from tests.thoroughness import covering, sample, spread

pytest_plugins = ("pytester",)

CASES = [dict(zip("abc", map(str, case), strict=True)) for case in product(range(4), range(3), range(2))]


@pytest.mark.parametrize(("strength", "most"), [(1, 4), (2, 14), (3, 24)])
def test_all_combinations_of_so_many_values_are_chosen(strength: int, most: int) -> None:
    names = ["abc"] if strength == 3 else ["ab", "ac", "bc"] if strength == 2 else ["a", "b", "c"]
    chosen = [CASES[n] for n in covering(CASES, strength)]
    for of in names:
        assert {tuple(c[x] for x in of) for c in chosen} == {tuple(c[x] for x in of) for c in CASES}
    assert len(chosen) <= most


def test_values_are_taken_equally_often() -> None:
    chosen = [CASES[n] for n in covering(CASES, 1)]
    assert sorted(case["c"] for case in chosen) == ["0", "0", "1", "1"]


def test_what_occurs_in_no_case_is_not_missed() -> None:
    assert covering([{"a": "0", "b": "0"}, {"a": "0", "b": "0"}, {"a": "1", "b": "1"}], 2) == [0, 2]
    assert covering([], 1) == []


TESTS = """
import pytest

@pytest.mark.covering(1)
@pytest.mark.parametrize("b", [0, pytest.param(1, marks=pytest.mark.skipif(True, reason="absent"))])
@pytest.mark.parametrize("a", [0, 1])
@pytest.mark.parametrize("c", ["x", "y"])
def test_it(a, b, c):
    pass

@pytest.mark.sampled(2)
@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, pytest.param(5, marks=pytest.mark.skipif(True, reason="absent"))])
def test_many(n):
    assert n < 5

@pytest.mark.sampled(1)
@pytest.mark.covering(1)
@pytest.mark.parametrize("a", [0, 1])
@pytest.mark.parametrize("b", [0, 1])
def test_both(a, b):
    assert a == b
"""


@pytest.mark.parametrize(
    ("few", "places"), [(1, [0]), (2, [0, 3]), (3, [0, 2, 4]), (4, [0, 1, 3, 5]), (7, [*range(7)]), (9, [*range(7)])]
)
def test_samples_are_spread_over_all_cases(few: int, places: list[int]) -> None:
    assert spread(7, few) == places


def test_other_tests_take_other_cases() -> None:
    taken = [spread(12, 3, f"test_{n}") for n in range(40)]
    assert {place for places in taken for place in places} == set(range(12))
    assert all(later - earlier == 4 for places in taken for earlier, later in pairwise(places))


def test_samples_take_values_equally_often() -> None:
    chosen = [CASES[n] for n in sample(CASES, 4, "test_it")]
    assert [len({case[name] for case in chosen}) for name in "abc"] == [4, 3, 2]
    assert len(sample(CASES, 11, "test_it")) == 11


def test_skipped_cases_stand_for_none_and_named_ones_run(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=TESTS)
    pytester.makeconftest("from tests.thoroughness import by_day as pytest_collection_modifyitems")
    pytester.makeini("[pytest]\nmarkers =\n  covering(strength): see there\n  sampled(few): there, too")
    pytester.runpytest().assert_outcomes(passed=5, skipped=5, deselected=8)
    pytester.runpytest("test_it.py::test_it[x-0-0]").assert_outcomes(passed=1)
    for n in range(5):
        pytester.runpytest(f"test_it.py::test_many[{n}]").assert_outcomes(passed=1)
