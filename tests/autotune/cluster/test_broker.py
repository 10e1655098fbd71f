"""The broker, without Dask: sessions of this machine, and what it refuses."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tensorlang.autotune.cluster import broker
from tensorlang.autotune.cluster.address import parse_address
from tensorlang.autotune.cluster.broker import OtherDevice, Session
from tensorlang.autotune.cluster.connection import agreed
from tensorlang.autotune.measuring.harness import Limits
from tensorlang.autotune.records.record import Status
from tensorlang.autotune.space import sketches_of
from tensorlang.autotune.task import Task, create_task
from tensorlang.errors import TargetError

ADDRESS = parse_address("dask://localhost:8786")
GOOD = (Status.OK, Status.NOISY)


@pytest.fixture(scope="module")
def task() -> Task:
    return create_task("matmul", (24, 40, 16), threads=1)


@pytest.fixture
def session(task: Task) -> Iterator[Session]:
    made = Session("a", pickle.dumps(task), broker.device().kind, 0, Limits(builders=1))
    yield made
    for key in "abc":
        broker.close(key)


def _trace(task: Task) -> Any:
    sketch = sketches_of(task)[0]
    return sketch.trace.with_decisions(sketch.decisions(sketch.sample(np.random.default_rng(0), 1)[0])).to_json()


def test_failures_come_back_as_data_beside_what_worked(task: Task, session: Session) -> None:
    good, nonsense = broker.measure(session, [_trace(task), [{"step": "frobnicate"}]], None)
    assert (good.status in GOOD, nonsense.status) == (True, Status.BUILD_ERROR)
    assert "frobnicate" in nonsense.error
    assert good.host == broker.device().host
    assert good.checked


def test_the_latest_sessions_stay_open(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "MOST_SESSIONS", 2)
    for key in ("a", "b", "a", "c"):
        broker.measure(replace(session, key=key), [], None)
    assert list(broker._open) == ["a", "c"]
    broker.close("a")
    broker.close("a")
    assert list(broker._open) == ["c"]


def test_a_session_that_nobody_uses_any_more_ends(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "IDLE", 0.01)
    broker.measure(session, [], None)
    until = time.monotonic() + 20
    while broker._open and time.monotonic() < until:
        time.sleep(0.01)
    assert not broker._open
    monkeypatch.undo()
    broker.measure(session, [], None)  # and may come back
    assert list(broker._open) == ["a"]


def test_a_worker_of_another_kind_takes_no_part(session: Session) -> None:
    other = replace(session, key="b", kind=("something else",))
    with pytest.raises(OtherDevice, match=broker.device().target.cpu):
        broker.measure(other, [], None)


def test_workers_of_one_kind_agree_on_the_fewest_cores() -> None:
    here = broker.device()
    fewer = replace(here, target=replace(here.target, cores=1))
    more = replace(here, target=replace(here.target, cores=64), host=here.host | {"name": "elsewhere"})
    assert agreed([more, fewer], ADDRESS) == fewer


def test_workers_of_different_kinds_cannot_measure_together() -> None:
    here = broker.device()
    other = replace(here, host=here.host | {"cpu": "Abacus 9000", "name": "attic"})
    with pytest.raises(TargetError, match=r"cannot be compared: .*attic \(Abacus 9000.*--device NAME"):
        agreed([here, other], ADDRESS)
    weaker = replace(here, features=frozenset())
    assert here.kind != weaker.kind


def test_workers_with_other_software_are_refused() -> None:
    here = broker.device()
    old = replace(here, versions=here.versions | {"llvmlite": "0.1"})
    with pytest.raises(TargetError, match=r"has llvmlite 0\.1, this machine has llvmlite .*install the same"):
        agreed([here, old], ADDRESS)
    python = here.versions["python"]
    patch = replace(here, versions=here.versions | {"python": f"{python.rsplit('.', 1)[0]}.999"})
    assert agreed([patch], ADDRESS) == patch
