"""What is given to the workers of a cluster, and when, without Dask: a client that answers at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tensorlang.autotune import Limits, Status, create_task
from tensorlang.autotune.cluster.address import parse_address
from tensorlang.autotune.cluster.broker import Session
from tensorlang.autotune.cluster.connection import MOST_DEATHS, Connection
from tensorlang.autotune.cluster.machines import ClusterHarness
from tensorlang.autotune.measuring.harness import Measurement, WorkersLost


class Killed(Exception):
    """Dask's word for a call that workers died of."""


class FakeFuture:
    """A call that has ended, or that never ends when its value is None; `lost`: its value cannot be had."""

    def __init__(self, value: Any, lost: bool) -> None:
        self.value = value
        self.lost = lost
        self.status = "error" if isinstance(value, Exception) else "finished"

    def add_done_callback(self, tell: Callable[[FakeFuture], None]) -> None:
        if self.value is not None:
            tell(self)

    def result(self, timeout: float) -> Any:
        if self.lost:
            raise TimeoutError
        return self.value

    def exception(self) -> Any:
        return self.value

    def release(self) -> None:
        return


class FakeClient:
    """Workers that answer; the first `lost` values die with them. `given` holds the arguments of every call."""

    def __init__(self, answer: Callable[..., Any], workers: int = 1, lost: int = 0) -> None:
        self.answer = answer
        self.workers = workers
        self.lost = lost
        self.given: list[tuple[Any, ...]] = []
        self.cancelled: list[FakeFuture] = []

    def scheduler_info(self, n_workers: int) -> Any:
        assert n_workers == -1
        return {"workers": {f"tcp://{n}": {"resources": {"device": 1.0}} for n in range(self.workers)}}

    def submit(self, function: Any, *args: Any, **how: Any) -> FakeFuture:
        self.given.append(args)
        self.lost -= 1
        return FakeFuture(self.answer(*args), self.lost >= 0)

    def cancel(self, futures: list[FakeFuture], force: bool) -> None:
        self.cancelled += futures


def connection(client: FakeClient, patience: float = 5.0) -> Connection:
    made = Connection.__new__(Connection)
    made.address, made.patience, made._client = parse_address("dask://localhost:1"), patience, client
    made._distributed = SimpleNamespace(scheduler=SimpleNamespace(KilledWorker=Killed), CommClosedError=OSError)
    return made


def double(n: int) -> int:
    return 2 * n


def test_calls_are_taken_when_there_are_some() -> None:
    client = FakeClient(double)
    found: list[tuple[int, Any]] = []

    def arguments() -> Iterator[tuple[int] | None]:
        yield (1,)
        yield None
        assert found == [(0, 2)]
        yield (5,)
        yield (7,)

    for item in connection(client).calls(double, arguments()):
        found.append(item)
    assert found == [(0, 2), (1, 10), (2, 14)]
    assert client.given == [(1,), (5,), (7,)]


def test_a_value_that_died_with_its_worker_is_computed_again() -> None:
    client = FakeClient(double, lost=2)
    assert sorted(connection(client).calls(double, [(1,), (2,)])) == [(0, 2), (1, 4)]
    assert client.given == [(1,), (2,), (1,), (2,)]


def never(n: int) -> None:
    return


def test_nobody_is_waited_for_longer_than_patience_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorlang.autotune.cluster.connection.POLL", 0.01)
    with pytest.raises(WorkersLost, match=r"no worker with the device is at .* \(waited 0 s\)"):
        list(connection(FakeClient(never, workers=0), patience=0.0).calls(never, [(1,)]))


def test_what_is_not_done_in_time_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorlang.autotune.cluster.connection.POLL", 0.01)
    client = FakeClient(never)
    assert list(connection(client).calls(never, [(1,), (2,)], time.monotonic() + 0.02)) == []
    assert len(client.cancelled) == 2


def measured(client: FakeClient, traces: Sequence[Any]) -> dict[int, Status]:
    task = create_task("matmul", (8, 8, 8), threads=1)
    harness = ClusterHarness(task, Session("a", b"", (), 0, Limits()), connection(client))
    found = list(harness.measure(traces, lambda: None))
    assert len({n for n, _ in found}) == len(found)
    return {n: measurement.status for n, measurement in found}


@pytest.mark.parametrize(
    ("workers", "count", "groups"),
    [(1, 8, [4, 4]), (3, 12, [4, 4, 4]), (4, 5, [2, 2, 1]), (2, 1, [1]), (0, 3, [3])],
)
def test_every_worker_gets_a_few_candidates(workers: int, count: int, groups: list[int]) -> None:
    def answer(session: Any, traces: list[Any], best: Any) -> Any:
        return [Measurement(Status.OK, (1.0,))] * len(traces)

    client = FakeClient(answer, workers)
    assert measured(client, range(count)) == dict.fromkeys(range(count), Status.OK)
    assert [len(traces) for _, traces, _ in client.given] == groups


def test_of_those_that_workers_died_of_together_each_is_tried_alone() -> None:
    def answer(session: Any, traces: list[Any], best: Any) -> Any:
        return Killed() if "bad" in traces else [Measurement(Status.OK, (1.0,))] * len(traces)

    client = FakeClient(answer)
    found = measured(client, ["good", "bad", "good", "good", "good", "good"])
    assert found == {n: Status.CRASH if n == 1 else Status.OK for n in range(6)}
    calls = [traces for _, traces, _ in client.given]
    assert calls.count(["good", "bad", "good", "good"]) == calls.count(["bad"]) == MOST_DEATHS + 1
    assert calls.count(["good"]) == 3


def test_candidates_that_are_proposed_later_are_measured_too() -> None:
    """A source that waits for the first results: also where workers die of these."""

    def answer(session: Any, traces: list[Any], best: Any) -> Any:
        return Killed() if "bad" in traces else [Measurement(Status.OK, (1.0,))] * len(traces)

    def proposals() -> Iterator[Any]:
        yield from ["good", "bad"]
        yield None
        yield "good"

    found = measured(FakeClient(answer), cast(Any, proposals()))
    assert found == {0: Status.OK, 1: Status.CRASH, 2: Status.OK}
