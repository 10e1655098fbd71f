"""One workload, all contestants: results checked first, then timed in turn, with the limits of the machine."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.contestant import Absent, Contestant
from benchmarks.limits import Machine, limit
from benchmarks.operators import Array, Arrays
from benchmarks.peers.libraries import OWN
from benchmarks.peers.process import PeerError
from benchmarks.workloads import Contested

SETTLE = 0.002
"""Seconds between turns."""

LONGEST_CALL = 2.0
"""Seconds of a call from which a peer is left out."""
HOPELESS = 10
"""Peers that take so many times as long as the fastest contestant have one turn."""
OWN_NAME = OWN.name

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Figures of one workload. Times are medians over the turns, in seconds; `ratio` is of times in the same turn."""

    workload: str
    operator: str
    group: str
    operations: float
    bytes: int
    seconds: dict[str, float]
    prepared: dict[str, float]
    errors: dict[str, float]
    absent: dict[str, Absent]
    rates: dict[str, float]
    limit_seconds: float
    binds: str
    best_peer: str | None
    ratio: float | None
    against: str
    goal: float
    goal_of_peak: float | None

    @property
    def share(self) -> float | None:
        """Of the limit that binds."""
        own = self.seconds.get(OWN_NAME)
        return None if own is None else self.limit_seconds / own

    @property
    def met(self) -> bool:
        """True when the goals that can be judged are met: no ratio without a peer, but always a result."""
        if OWN_NAME not in self.seconds:
            return False
        of_peak = self.goal_of_peak is None or self.share is None or self.share >= self.goal_of_peak
        return of_peak and (self.ratio is None or self.ratio >= self.goal)


def compete(workload: Contested, contestants: Sequence[Contestant], rounds: int, machine: Machine, say: Say) -> Outcome:
    """Prepare and check every contestant, then let those with right results run in turn."""
    inputs = workload.inputs()
    exact = workload.reference(inputs)
    found = _Preparation({}, {}, {}, [])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save(inputs, folder)
        for contestant in contestants:
            found.add(contestant, workload, folder, exact)
            if contestant.name in found.absent and found.absent[contestant.name].failed:
                say(f"  {contestant.name}: {found.absent[contestant.name].reason}")
    turns, rates = _turns(found, rounds, machine)
    seconds = {name: statistics.median(values) for name, values in turns.items()}
    best, ratio = _ratio(turns, seconds, workload.goal.against)
    bound = limit(workload, rates, machine)
    goal = workload.goal
    return Outcome(
        workload=workload.name,
        operator=workload.operator,
        group=workload.group,
        operations=workload.operations,
        bytes=workload.bytes,
        seconds=seconds,
        prepared=found.seconds,
        errors=found.errors,
        absent=found.absent,
        rates=rates,
        limit_seconds=bound.seconds,
        binds=bound.binds,
        best_peer=best,
        ratio=ratio,
        against=goal.against,
        goal=goal.ratio(machine.threads),
        goal_of_peak=goal.of_peak if machine.threads == 1 else None,
    )


def save(inputs: Arrays, folder: Path) -> None:
    """Write the inputs where contestants read them."""
    for name, array in inputs.items():
        np.save(folder / f"{name}.npy", array)


@dataclass(slots=True)
class _Preparation:
    """Who takes part, and who does not."""

    seconds: dict[str, float]
    errors: dict[str, float]
    absent: dict[str, Absent]
    ready: list[Contestant]

    def add(self, contestant: Contestant, workload: Contested, folder: Path, exact: Array) -> None:
        """Prepare a contestant and check its result."""
        name = contestant.name
        seconds = contestant.prepare(workload, folder)
        if isinstance(seconds, Absent):
            self.absent[name] = seconds
            return
        try:
            error = largest_error(contestant.result(folder / "result.npy"), exact)
        except (PeerError, ValueError) as problem:
            self.drop(contestant, str(problem))
            return
        self.seconds[name], self.errors[name] = seconds, error
        if contestant.estimate > LONGEST_CALL and name != OWN_NAME:
            self.absent[name] = Absent(f"a call takes {contestant.estimate:.0f} s")
        elif error <= workload.tolerance:
            self.ready.append(contestant)
        else:
            wanted = f"{workload.tolerance:.1g} of the largest value is allowed"
            self.absent[name] = Absent(f"wrong result: off by {error:.2g}, {wanted}", failed=True)

    def drop(self, contestant: Contestant, reason: str) -> None:
        """Take a contestant out whose process failed."""
        contestant.close()
        self.absent[contestant.name] = Absent(reason, failed=True)
        self.ready = [c for c in self.ready if c is not contestant]


def largest_error(got: Array, exact: Array) -> float:
    """The largest difference, as a share of the largest value; not a number counts as infinite."""
    if got.shape != exact.shape:
        raise ValueError(f"wrong result: shape {got.shape}, wanted {exact.shape}")
    difference = float(np.abs(got.astype(np.float64) - exact).max())
    return difference / float(np.abs(exact).max()) if np.isfinite(difference) else np.inf


def _turns(found: _Preparation, rounds: int, machine: Machine) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Seconds of every turn by contestant, all of the same rounds; the machine's rates.

    The clock drifts, so the peak is a median; bandwidth is what others on the machine leave, so the best is taken.
    """
    turns: dict[str, list[float]] = {c.name: [] for c in found.ready}
    slow = HOPELESS * min((c.estimate for c in found.ready), default=0.0)
    rates: list[dict[str, float]] = []
    for turn in range(rounds):
        rates.append(machine.rates())
        for contestant in tuple(found.ready):
            if turn and contestant.estimate > slow and contestant.name != OWN_NAME:
                continue
            time.sleep(SETTLE)
            try:
                turns[contestant.name].append(contestant.time())
            except PeerError as error:
                found.drop(contestant, str(error))
                del turns[contestant.name]
    best = {key: max(r[key] for r in rates) for key in rates[0]}
    return turns, best | {"gflops": statistics.median(r["gflops"] for r in rates)}


def _ratio(turns: dict[str, list[float]], seconds: dict[str, float], against: str) -> tuple[str | None, float | None]:
    """The peer with the least median, and the median of its time over ours."""
    peers = [name for name in seconds if name != OWN_NAME and name.startswith(against)]
    if not peers or OWN_NAME not in seconds:
        return None, None
    best = min(peers, key=seconds.__getitem__)
    return best, statistics.median(p / own for p, own in zip(turns[best], turns[OWN_NAME], strict=False))
