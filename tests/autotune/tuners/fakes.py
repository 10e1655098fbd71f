"""A measurer that measures nothing: times are a formula of the trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from tensorlang.autotune.measuring.harness import Harness, Measurement
from tensorlang.autotune.records.record import Status


def split_seconds(trace: Any) -> float:
    """Least when the splits are by 4, 8 and 4; annotations are worth a little."""
    factors = [step["factor"] for step in trace if step["step"] == "split"]
    seconds = 1e-3
    for factor, best in zip(factors, (4, 8, 4), strict=False):
        seconds *= 1 + abs(factor - best) / best
    return seconds * (0.9 if any(step["step"] == "vectorize" for step in trace) else 1.0)


@dataclass
class FakeMeasurer:
    """Answers at once; `broken` says which traces fail."""

    seconds: Callable[[Any], float] = split_seconds
    broken: Callable[[Any], bool] = lambda trace: False
    seen: list[Any] = field(default_factory=list)

    def measure(self, traces: Sequence[Any], best: Callable[[], float | None]) -> Iterator[tuple[int, Measurement]]:
        for position, trace in enumerate(traces):
            self.seen.append(trace)
            if self.broken(trace):
                yield position, Measurement(Status.CRASH, error="it fell over")
            else:
                yield position, Measurement(Status.OK, (self.seconds(trace),), checked=True)


def fake_measurer(**settings: Any) -> tuple[Harness, FakeMeasurer]:
    """A fake as the tuners take it, and as tests look at it."""
    fake = FakeMeasurer(**settings)
    return cast(Harness, fake), fake
