"""Candidates that go wrong in every way: each ends with its status and a clear message, the others unharmed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorlang.autotune.measuring.harness import Limits, Measurement
from tensorlang.autotune.measuring.measurer import Measurer
from tensorlang.autotune.records.record import Status
from tensorlang.autotune.space import sketches_of
from tensorlang.autotune.task import Task, create_task

from . import faults

GOOD = (Status.OK, Status.NOISY)
FOLDER = str(Path(__file__).parent)


@pytest.fixture(scope="module")
def task() -> Task:
    return create_task("matmul", (24, 40, 16), threads=1)


@pytest.fixture(scope="module")
def pid_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults") / "pid"


@pytest.fixture(scope="module")
def measurer(task: Task, pid_file: Path) -> Iterator[Measurer]:
    """A real one, whose builds and runs are those of `faults`."""
    import importlib
    import sys

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", FOLDER, prepend=os.pathsep)
        patch.setenv("FAULTS_PID_FILE", str(pid_file))
        patch.syspath_prepend(FOLDER)
        loaded = importlib.import_module("faults")  # by the name that the workers know it by
        patch.setattr("tensorlang.autotune.measuring.measurer.build_candidate", loaded.build_candidate)
        patch.setattr("tensorlang.autotune.measuring.measurer.run_candidate", loaded.run_candidate)
        with Measurer(task, limits=Limits(run=1.5, build=20.0, memory=8 << 30)) as made:
            yield made
        sys.modules.pop("faults")


@pytest.fixture(scope="module")
def steps(task: Task) -> Any:
    sketch = sketches_of(task)[0]
    row = sketch.sample(np.random.default_rng(0), 1)[0]
    return sketch.trace.with_decisions(sketch.decisions(row)).to_json()


def _measure(measurer: Measurer, traces: list[Any]) -> list[Measurement]:
    found = dict(measurer.measure(traces, lambda: None))
    return [found[n] for n in range(len(traces))]


FAULTS = {
    "segfault": (Status.CRASH, "SIGSEGV"),
    "hang": (Status.TIMEOUT, "not done after 1.5 s"),
    "allocate": (Status.MEMORY, "out of memory"),
    "spoil": (Status.WRONG_ANSWER, "output 0 differs at 960 of 960 elements; at [0, 0] 7.0 instead of"),
    "builder dies": (Status.CRASH, "SIGABRT"),
    "builder allocates": (Status.MEMORY, "out of memory"),
}


def test_every_fault_has_its_status_and_the_others_are_unharmed(measurer: Measurer, steps: Any) -> None:
    bad = [{"fault": name, "trace": steps} for name in FAULTS]
    results = _measure(measurer, [trace for pair in zip(bad, [steps] * len(bad), strict=True) for trace in pair])
    assert {name: r.status for name, r in zip(FAULTS, results[::2], strict=True)} == {
        name: status for name, (status, _) in FAULTS.items()
    }
    for (_, message), result in zip(FAULTS.values(), results[::2], strict=True):
        assert message in result.error, result.error
        assert result.seconds == ()
    assert all(r.status in GOOD and r.checked for r in results[1::2])
    assert all(not r.checked for r in results[::2])


@contextmanager
def _limited(measurer: Measurer, limits: Limits) -> Iterator[None]:
    before, measurer.limits = measurer.limits, limits
    try:
        yield
    finally:
        measurer.limits = before


def test_a_build_that_hangs_is_killed_at_its_limit(measurer: Measurer, steps: Any) -> None:
    with _limited(measurer, Limits(run=1.0, build=1.0)):
        hung, good = _measure(measurer, [{"fault": "builder hangs", "trace": steps}, steps])
    assert (hung.status, good.status in GOOD) == (Status.TIMEOUT, True)
    assert "not done after 1 s" in hung.error


def test_a_runner_that_is_killed_from_outside_is_a_crash_and_the_rest_goes_on(
    measurer: Measurer, steps: Any, pid_file: Path
) -> None:
    def kill() -> None:
        while not pid_file.exists() or not pid_file.read_text():
            time.sleep(0.01)
        os.kill(int(pid_file.read_text()), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    killed, good = _measure(measurer, [{"fault": "killed", "trace": steps}, steps])
    killer.join(10)
    assert (killed.status, good.status in GOOD) == (Status.CRASH, True)
    assert "SIGKILL" in killed.error


def test_a_batch_that_is_given_up_leaves_nothing_behind(measurer: Measurer, steps: Any) -> None:
    some = measurer.measure([steps, *[{"fault": "hang", "trace": steps}] * 3], lambda: None)
    assert next(some)[1].status in (*GOOD, Status.TIMEOUT)  # whichever was built first
    some.close()
    assert [r.status in GOOD for r in _measure(measurer, [steps, steps])] == [True, True]


def test_what_is_not_done_at_the_deadline_is_dropped(measurer: Measurer, steps: Any) -> None:
    hangs = [{"fault": name, "trace": steps} for name in ("builder hangs", "hang")]
    start = time.monotonic()
    with _limited(measurer, Limits(run=20.0, build=20.0)):
        assert dict(measurer.measure([hangs[0]] * 3, lambda: None, start + 0.4)) == {}
        assert dict(measurer.measure([hangs[1]], lambda: None, start + 0.8)) == {}
    assert time.monotonic() - start < 10
    assert [r.status in GOOD for r in _measure(measurer, [steps, steps])] == [True, True]


def test_all_faults_have_a_kernel_or_a_build() -> None:
    assert {name for name in FAULTS if not name.startswith("builder")} < set(faults.KERNELS)


def test_conditions_say_how_it_was_timed(measurer: Measurer, steps: Any) -> None:
    (found,) = _measure(measurer, [steps])
    assert set(found.conditions) == {"flush", "rejected", "spread", "priority", "cpus", "tolerance"}
    assert found.conditions["flush"] is False
    assert found.conditions["tolerance"][0] > 0
