"""A record of a small task."""

from __future__ import annotations

import pytest

from tensorlang.autotune.records.record import Status, TuningRecord, WorkloadId, now


@pytest.fixture
def record() -> TuningRecord:
    """An ok record of a small matmul."""
    workload = WorkloadId("matmul", (4, 5, 6, "float32"), "k" * 16, ("A: float32[4, 6]",), "float32", 240.0)
    return TuningRecord(
        workload=workload,
        target={"kind": "llvm", "cpu": "znver5", "caches": [1, 2]},
        threads=1,
        sketch="fake",
        trace=[{"step": "split"}],
        trace_key="t" * 16,
        decisions={"x": 1},
        status=Status.OK,
        seconds=(1e-3, 2e-3),
        estimate=1e-3,
        checked=True,
        seed=7,
        host={"name": "here"},
        versions={"tensorlang": "1"},
        time=now(),
    )
