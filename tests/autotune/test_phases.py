"""Phases of tuning: told once each begins, timed, and heard around any tuner."""

from __future__ import annotations

from tensorlang.autotune import Phase, on_phase
from tensorlang.autotune.phases import Phases, enter, timed_phases


def test_phases_are_told_and_timed() -> None:
    told: list[Phase] = []
    times = iter([0.0, 1.0, 3.0, 3.5, 10.0])
    phases = Phases(told.append, lambda: next(times))
    for phase in (Phase.READING, Phase.READING, Phase.TIMING, Phase.READING):
        phases.enter(phase)
    phases.leave()
    assert told == [Phase.READING, Phase.TIMING, Phase.READING]
    assert phases.seconds == {Phase.READING: 1.0 + 0.5, Phase.TIMING: 2.0}


def test_the_current_phase_counts_until_now() -> None:
    times = iter([2.0, 5.0])
    phases = Phases(None, lambda: next(times))
    phases.enter(Phase.BUILDING)
    assert phases.seconds == {Phase.BUILDING: 3.0}


def test_who_listens_hears_of_tuners_inside_and_nobody_else() -> None:
    told: list[Phase] = []
    enter(Phase.TIMING)  # nobody tunes
    with on_phase(told.append):
        with timed_phases() as one:
            enter(Phase.READING)
            enter(Phase.BUILDING)
        with timed_phases() as other:
            enter(Phase.BUILDING)
    enter(Phase.RANKING)
    assert told == [Phase.READING, Phase.BUILDING]
    assert set(one.seconds) == {Phase.READING, Phase.BUILDING}
    assert set(other.seconds) == {Phase.BUILDING}
