"""The best of many short samples, spread over time: what a machine can do, also when others are at work on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from tensorlang.dataclass import dataclass

ROUNDS = 8
"""Samples of each rate before they are judged."""
MOST_TURNS = 6
"""How often rounds are repeated while the rates cannot be."""
GAP = 0.02
"""Seconds before the first repeat; each later one waits twice as long, since whoever disturbs may be gone by then."""
AGREEING, CLOSE = 3, 0.9
"""A rate that was reached so often, by this share at least, is no chance."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The best of each rate, what is doubtful about them in words, and how often the rounds were repeated."""

    best: dict[str, float]
    doubts: tuple[str, ...]
    turns: int


def best_of_spread(
    samplers: Mapping[str, Callable[[], float]],
    known: Mapping[str, float],
    impossible: Callable[[Mapping[str, float]], Iterable[str]],
    rounds: int = ROUNDS,
    pause: Callable[[float], object] = time.sleep,
) -> Spread:
    """Sample all rates in turn, again and again, until they are possible and settled, or have been repeated enough.

    `known` are rates of earlier, which count where they are better: nothing has to be repeated for those. Where rates
    cannot be even after all repeats, those of earlier may be to blame, and do not count.
    """
    samples: dict[str, list[float]] = {name: [] for name in samplers}
    turns = 0
    while True:
        for _ in range(rounds):
            for name, sample in samplers.items():
                samples[name].append(sample())
        turns += 1
        best = {name: max(*found, known.get(name, 0.0)) for name, found in samples.items()}
        wrong = tuple(impossible(best))
        chance = [_by_chance(name, found) for name, found in samples.items() if max(found) == best[name]]
        doubts = (*wrong, *filter(None, chance))
        if not doubts or turns == MOST_TURNS:
            break
        pause(GAP * 2 ** (turns - 1))
    if wrong and known:
        best = {name: max(found) for name, found in samples.items()}
        return Spread(best, tuple(impossible(best)) or doubts, turns)
    slower = [_slower(name, max(found), best[name]) for name, found in samples.items()]
    return Spread(best, (*doubts, *filter(None, slower)), turns)


def _by_chance(name: str, found: list[float]) -> str:
    """In words, that the best of some samples is the best by chance; empty where it is not."""
    best, middle = max(found), sorted(found)[len(found) // 2]
    close = sum(rate >= CLOSE * best for rate in found)
    if close >= AGREEING:
        return ""
    return (
        f"{name}: {close} of {len(found)} samples came near the best, {best:.3g} e9/s; the middle one is {middle:.3g}"
    )


def _slower(name: str, now: float, best: float) -> str:
    """In words, that a rate was better before; empty where it was not by much."""
    return f"{name}: {now:.3g} e9/s now, {best:.3g} before, which counts" if now < CLOSE * best else ""
