"""How much of what could be drawn a run draws: a sample that covers, or all of it with HYPOTHESIS_PROFILE=nightly."""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any, TypeAlias

import pytest
from hypothesis.internal.conjecture.engine import ConjectureRunner

from tests.profiles import NIGHTLY

COVERING = "covering"
"""`covering(2)`: of a test with several parameters, cases in which all pairs of values occur; others wait a night."""
SAMPLED = "sampled"
"""`sampled(3)`: of a test with many cases, three that differ much; others wait a night.

Those of a CUDA device are sampled by themselves."""

Values: TypeAlias = tuple[tuple[str, str], ...]
"""Some parameters of a test, and the value of each."""


def draws(few: int, all_: int) -> int:
    """How many to draw of a large space."""
    return all_ if NIGHTLY else few


def each_draw_anew() -> None:
    """By day, draw every example by itself.

    After an example that it draws, hypothesis makes five from parts of it: of 50 programs a third were repeats and the
    rest of ten families, whose share of illegal ones was left to chance. Which parts fit each other it tells by hashes,
    those of functions by their places in memory: the same test drew others after other tests. Many draws bear both.
    """
    if not NIGHTLY:
        setattr(ConjectureRunner, "generate_mutations_from", lambda runner, data: None)  # noqa: B010


def covering(cases: Sequence[dict[str, str]], strength: int) -> list[int]:
    """The places of cases in which every combination of values of so many parameters occurs that occurs at all.

    Those that cover the most come first, of them those whose values have been taken least.
    """
    left = [set(_combinations(case, strength)) for case in cases]
    wanted: set[Values] = set().union(*left)
    taken: Counter[tuple[str, str]] = Counter()
    chosen = []

    def worth(n: int) -> tuple[int, int, int]:
        return len(left[n] & wanted), -sum(taken[value] for value in cases[n].items()), -n

    while wanted:
        best = max(range(len(cases)), key=worth)
        chosen.append(best)
        wanted -= left[best]
        taken.update(cases[best].items())
    return sorted(chosen)


def _combinations(case: dict[str, str], strength: int) -> Iterator[Values]:
    return combinations(sorted(case.items()), min(strength, len(case)))


def spread(count: int, few: int, name: str = "") -> list[int]:
    """So many places of a row, as far from each other. Where they begin is told by a name: other tests take others."""
    if few >= count:
        return list(range(count))
    first = zlib.crc32(name.encode()) % (count // few)
    return [first + n * count // few for n in range(few)]


def sample(cases: Sequence[dict[str, str]], few: int, name: str) -> list[int]:
    """So many places of the cases of a test: spread if it has one parameter, else those with the values taken least."""
    if few >= len(cases) or len(cases[0]) < 2:
        return spread(len(cases), few, name)
    taken: Counter[tuple[str, str]] = Counter()
    left = list(range(len(cases)))
    for _ in range(few):
        best = min(left, key=lambda n: (sum(taken[v] for v in cases[n].items()), zlib.crc32(f"{name} {n}".encode())))
        left.remove(best)
        taken.update(cases[best].items())
    return [n for n in range(len(cases)) if n not in left]


def left_for_the_night(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """Of tests with a marker, the cases that need not run by day; those that are skipped here stand for none."""
    found: set[pytest.Item] = set()
    for marker in (COVERING, SAMPLED):  # of a test with both, those that cover are sampled
        found |= set(_left([item for item in items if item not in found], marker))
    return found


def _left(items: Sequence[pytest.Item], marker: str) -> Iterator[pytest.Item]:
    families: dict[tuple[str, bool], list[Any]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker(marker) and not any(mark.args[0] for mark in item.iter_markers("skipif")):
            of_device = marker == SAMPLED and item.get_closest_marker("cuda_device") is not None
            families[item.nodeid.partition("[")[0], of_device].append(item)
    for (name, _), family in families.items():
        number = family[0].get_closest_marker(marker).args[0]
        cases = [{n: repr(v) for n, v in item.callspec.params.items()} for item in family]
        by_day = covering(cases, number) if marker == COVERING else sample(cases, number, name)
        yield from (item for n, item in enumerate(family) if n not in set(by_day))


def by_day(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A hook of pytest: leave cases for the night, unless one is asked for by its name."""
    if NIGHTLY or any("[" in argument for argument in config.args):
        return
    left = left_for_the_night(items)
    config.hook.pytest_deselected(items=[item for item in items if item in left])
    items[:] = [item for item in items if item not in left]
