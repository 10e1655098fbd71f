"""Records of searches that never ran: enough of everything that a report shows."""

from __future__ import annotations

import random
from dataclasses import replace

from tensorlang.autotune import Status, TuningRecord

from ..records.hand import hand_record

HOSTILE = '</style></title><script src="https://evil.example/x.js">alert(1)</script>"\'><img src=x onerror=alert(1)>'


def made_search(count: int = 40, failing: int = 4) -> list[TuningRecord]:
    """A search that gets faster, a second a trial; the last `failing` trials crash."""
    rng = random.Random(0)
    base = replace(
        hand_record(),
        host={"name": "bench", "cpu": "Some CPU", "cores": 2, "memory": 2**34, "peak_gflops": 250.0},
        versions={"tensorlang": "1.2.3"},
        decisions={"rows": 8},
    )
    records = []
    for n in range(count):
        time = f"2026-01-01T{n // 3600:02d}:{n // 60 % 60:02d}:{n % 60:02d}Z"
        seconds = 1e-6 * (1 + rng.expovariate(1) / (1 + n / 10))
        estimate = 1e-6 * (1 + rng.random())
        records.append(replace(base, seconds=(seconds,) * 3, estimate=estimate, time=time))
    for n in range(count - failing, count):
        records[n] = replace(records[n], status=Status.CRASH, seconds=(), error=f"signal {n}")
    return records
