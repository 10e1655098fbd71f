"""The best of samples that a busy machine has spoilt: by a sampler that is a script."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain, repeat

import pytest

from tensorlang.target.rates import Rates, impossible
from tensorlang.target.sampling import AGREEING, MOST_TURNS, ROUNDS, best_of_spread
from tensorlang.target.spec import Target

TARGET = Target("llvm", vector_bytes=64, caches=(32768, 1 << 20, 1 << 25))


def scripted(**values: Iterator[float]) -> dict[str, Callable[[], float]]:
    return {name: values[name].__next__ for name in values}


def no_objection(_: Mapping[str, float]) -> list[str]:
    return []


def wrong_levels(values: Mapping[str, float]) -> list[str]:
    return list(impossible(Rates(1, values), TARGET))


def test_an_idle_machine_is_measured_once() -> None:
    waits: list[float] = []
    found = best_of_spread(scripted(fma=repeat(3.7)), {}, no_objection, pause=waits.append)
    assert (found.best, found.doubts, found.turns, waits) == ({"fma": 3.7}, (), 1, [])


def test_samples_that_others_have_disturbed_do_not_count() -> None:
    busy = chain([0.1, 3.7, 0.4, 3.6, 2.0, 3.69, 0.1, 3.5], repeat(0.1))
    found = best_of_spread(scripted(fma=busy), {}, no_objection, pause=lambda _: None)
    assert (found.best, found.doubts, found.turns) == ({"fma": 3.7}, (), 1)


def test_a_best_that_was_reached_once_is_looked_for_again() -> None:
    lucky = chain([0.1] * (ROUNDS - 1), [3.7], repeat(3.7))
    found = best_of_spread(scripted(fma=lucky), {}, no_objection, pause=lambda _: None)
    assert (found.doubts, found.turns) == ((), 2)


def test_what_stays_a_chance_is_said_and_repeats_are_bounded() -> None:
    waits: list[float] = []
    once = chain([3.7], repeat(0.5))
    found = best_of_spread(scripted(fma=once), {}, no_objection, pause=waits.append)
    assert found.turns == MOST_TURNS
    assert found.best == {"fma": 3.7}
    assert found.doubts == (
        f"fma: 1 of {ROUNDS * MOST_TURNS} samples came near the best, 3.7 e9/s; the middle one is 0.5",
    )
    assert waits == sorted(waits)
    assert len(waits) == MOST_TURNS - 1
    assert AGREEING > 1


def test_an_impossible_order_is_repeated_until_it_is_mended() -> None:
    L2 = chain(repeat(5.0, ROUNDS), repeat(115.0))
    found = best_of_spread(
        scripted(L1=repeat(220.0), L2=L2, L3=repeat(60.0), memory=repeat(20.0)), {}, wrong_levels, pause=lambda _: None
    )
    assert (found.best["L2"], found.doubts, found.turns) == (115.0, (), 2)


def test_an_impossible_order_that_stays_is_said() -> None:
    found = best_of_spread(
        scripted(L1=repeat(220.0), L2=repeat(5.0), L3=repeat(60.0), memory=repeat(20.0)),
        {},
        wrong_levels,
        pause=lambda _: None,
    )
    assert found.turns == MOST_TURNS
    assert found.doubts == ("L2 came out slower than L3: 5 and 60 GB/s",)


def test_a_better_rate_of_earlier_counts_at_once_and_the_difference_is_said() -> None:
    found = best_of_spread(scripted(fma=repeat(1.0)), {"fma": 3.7}, no_objection, pause=lambda _: None)
    assert (found.best, found.turns) == ({"fma": 3.7}, 1)
    assert found.doubts == ("fma: 1 e9/s now, 3.7 before, which counts",)
    assert best_of_spread(scripted(fma=repeat(3.8)), {"fma": 3.7}, no_objection).best == {"fma": 3.8}


def test_a_rate_of_earlier_that_cannot_be_is_forgotten() -> None:
    good = {"L1": repeat(220.0), "L2": repeat(115.0), "L3": repeat(60.0), "memory": repeat(20.0)}
    found = best_of_spread(scripted(**good), {"memory": 500.0}, wrong_levels, pause=lambda _: None)
    assert found.best["memory"] == 20.0
    assert found.turns == MOST_TURNS


GOOD = {
    "clock": 3.7,
    "fma float32x16": 3.7,
    "fma float64x8": 3.7,
    "L1": 220.0,
    "L2": 115.0,
    "L3": 60.0,
    "memory": 20.0,
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ""),
        ({"L2": 57.0}, ""),  # a little slower than it should be
        ({"L1": 100.0}, "L1 came out slower than L2: 100 and 115 GB/s"),
        ({"memory": 90.0}, "L3 came out slower than memory: 60 and 90 GB/s"),
        ({"fma float32x16": 37.0}, "10.0 of fma float32x16 in a cycle are more than any core begins"),
        ({"fma float32x16": 3.0}, "float32 came out slower than float64: 3 and 3.7 e9/s of 512 bits"),
        ({"clock": 40.0}, "a clock of 40 GHz is none"),
    ],
)
def test_what_cannot_be_is_said_in_words(change: dict[str, float], words: str) -> None:
    assert "; ".join(impossible(Rates(1, GOOD | change), TARGET)) == words


def test_more_threads_are_not_slower_and_more_cores_are_faster() -> None:
    alone = {"fma float32x16": 3.7, "memory": 20.0}

    def said(cores: int, **values: float) -> list[str]:
        return list(
            impossible(Rates(2, {"fma float32x16": values["fma"], "memory": values["memory"]}), TARGET, alone, cores)
        )

    assert said(2, fma=7.2, memory=25.0) == []
    assert said(1, fma=3.8, memory=25.0) == []  # two threads of one core
    assert said(2, fma=3.7, memory=25.0) == ["2 threads on 2 cores came out 1 times as fast as one, of fma float32x16"]
    assert said(2, fma=7.2, memory=10.0) == ["2 threads on 2 cores came out 0.5 times as fast as one, of memory"]
