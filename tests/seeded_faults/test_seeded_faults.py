"""No fault that is sown into the scan or into a pass gets by the check that is on in every build.

Here a kind of fault is drawn for each pass of each program, by night two, others for each;
`python -m tests.seeded_faults` sows all of them, at many places, and prints the table of docs/seeded_faults.md.
"""

from __future__ import annotations

import pytest

from tests.seeded_faults.mutations import MUTATIONS
from tests.seeded_faults.sowing import PROGRAMS, faults, passes_of
from tests.thoroughness import draws

CASES = [(name, word) for name in PROGRAMS for word in passes_of(name)]
KINDS = tuple(MUTATIONS)


@pytest.mark.sampled(60)
@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{name}-{word}" for name, word in CASES])
def test_faults_are_noticed(number: int) -> None:
    name, word = CASES[number]
    first = 5 * number % len(KINDS)
    sown = list(faults(name, word, KINDS[first:] + KINDS[:first], most=draws(1, 2), places=1))
    assert sown
    assert not [(kind, place) for kind, place, who in sown if not who]
