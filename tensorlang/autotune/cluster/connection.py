"""A connection to a scheduler: the workers of one device, and calls that outlive the worker they were given to."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from tensorlang.autotune.cluster import broker
from tensorlang.autotune.cluster.address import (
    Address,
    ConnectionRefused,
    Tls,
    require_distributed,
    require_private,
    security_of,
)
from tensorlang.autotune.cluster.broker import Device
from tensorlang.autotune.measuring.harness import WorkersLost
from tensorlang.autotune.records.fingerprint import versions
from tensorlang.autotune.records.record import Json
from tensorlang.dataclass import dataclass
from tensorlang.errors import TargetError, TensorlangError

CONNECT_LIMIT = 10.0
POLL = 0.5
DEVICE_LIMIT = 60.0
MOST_DEATHS = 3


@dataclass(frozen=True, slots=True)
class Died:
    """What became of a call whose workers died again and again."""

    times: int


class Connection:
    """A client of one scheduler. `patience`: seconds without any worker after which nobody is waited for."""

    def __init__(self, address: Address, tls: Tls | None, patience: float) -> None:
        require_private(address, tls)
        self.address = address
        self.patience = patience
        self._distributed = require_distributed()
        try:
            self._client = self._distributed.Client(
                address.url(tls), security=security_of(tls), timeout=CONNECT_LIMIT, set_as_default=False
            )
        except OSError as error:
            why = f"no scheduler answers at {address}; start one with: dask scheduler --port {address.port}"
            raise ConnectionRefused(why) from error

    def close(self) -> None:
        """Leave the cluster; calls that are under way end by themselves."""
        with suppress(OSError, TimeoutError):
            self._client.close(timeout=2)

    @property
    def workers(self) -> list[str]:
        """Addresses of the workers that declare the device; none when the scheduler is gone."""
        try:
            known = self._client.scheduler_info(n_workers=-1)["workers"]
        except (OSError, TimeoutError, self._distributed.CommClosedError):
            return []
        wanted = set(self.address.resources)
        return [name for name, worker in known.items() if wanted <= set(worker["resources"])]

    def device(self) -> Device:
        """What the workers measure; TargetError when there are none, or of different kinds, or with other software."""
        deadline = time.monotonic() + self.patience
        while not (names := self.workers):
            if time.monotonic() > deadline:
                raise TargetError(self._nobody())
            time.sleep(POLL / 5)
        futures = [
            self._client.submit(broker.device, workers=[n], allow_other_workers=False, pure=False) for n in names
        ]
        try:
            devices: list[Device] = [future.result(timeout=DEVICE_LIMIT) for future in futures]
        except TimeoutError as error:
            why = f"not all workers of {self.address} answered within {DEVICE_LIMIT:g} s; another tuner has them busy"
            raise TargetError(why) from error
        except Exception as error:
            raise _ours(error, self.address) from error
        return agreed(devices, self.address)

    def _nobody(self) -> str:
        name = f" {self.address.device!r}" if self.address.device else ""
        option = f" --device {self.address.device}" if self.address.device else ""
        at = f"{self.address}".removesuffix(f"/{self.address.device}")
        return f"no worker with the device{name} is at {at}; start one there with: tensorlang worker {at}{option}"

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a function of the broker on some worker; WorkersLost when there is none, or they die of it."""
        for _, value in self.calls(function, [args]):
            if isinstance(value, Died):
                raise WorkersLost(f"{value.times} workers of {self.address} died of {function.__name__}")
            return value
        raise WorkersLost(self._nobody())

    def calls(
        self,
        function: Callable[..., Any],
        argument_lists: Iterable[tuple[Any, ...] | None],
        deadline: float = math.inf,
    ) -> Generator[tuple[int, Any]]:
        """Run calls on the workers, and yield (position, value) as they end; of a call that workers died of, Died.

        None in place of arguments means that there are none before the next call ends. A worker that dies loses
        nothing: its calls go to the others, or to itself when its nanny has restarted it. What is not done at the
        `deadline` (of time.monotonic) is dropped. Raises WorkersLost when there has been no worker for `patience`
        seconds.
        """
        source, given, deaths = iter(argument_lists), list[tuple[Any, ...]](), Counter[int]()
        ended: SimpleQueue[Any] = SimpleQueue()
        pending: dict[Any, int] = {}
        alone = time.monotonic()
        try:
            while time.monotonic() < deadline:
                while (args := next(source, None)) is not None:
                    pending[self._submit(ended, function, args)] = len(given)
                    given.append(args)
                if not pending:
                    return
                future = _taken(ended)
                if self.workers:
                    alone = time.monotonic()
                elif future is None and time.monotonic() - alone > self.patience:
                    raise WorkersLost(f"{self._nobody()} (waited {self.patience:g} s)")
                if future is None:
                    continue
                n = pending.pop(future)
                if future.status == "finished":
                    try:
                        value = future.result(timeout=self.patience)
                    except (TimeoutError, self._distributed.scheduler.KilledWorker):  # its worker died with it
                        pending[self._submit(ended, function, given[n])] = n
                        continue
                    future.release()  # else it would be computed again when its worker dies
                    yield n, value
                elif deaths[n] >= MOST_DEATHS:
                    yield n, Died(deaths[n])
                else:
                    deaths[n] += self._death(future)
                    pending[self._submit(ended, function, given[n])] = n
        finally:
            if pending:
                with suppress(OSError, TimeoutError):
                    self._client.cancel(list(pending), force=True)

    def _submit(self, ended: SimpleQueue[Any], function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        future = self._client.submit(function, *args, resources=self.address.resources, pure=False)
        future.add_done_callback(ended.put)
        return future

    def _death(self, future: Any) -> int:
        """How many deaths a lost call means; raises what a call raised by itself."""
        if future.status != "error":
            return 0 if self.workers else 1  # the scheduler forgot it
        error = future.exception()
        if isinstance(error, self._distributed.scheduler.KilledWorker):
            return 1
        raise _ours(error, self.address)

    def tell_all(self, function: Callable[..., Any], *args: Any) -> None:
        """Run a function once on every worker after what it has to do, and wait for nothing."""
        with suppress(OSError, TimeoutError):
            for name in self.workers:
                future = self._client.submit(function, *args, workers=[name], allow_other_workers=False, pure=False)
                self._distributed.fire_and_forget(future)


def _taken(queue: SimpleQueue[Any]) -> Any:
    """What comes first in a queue; None when nothing comes within a moment."""
    with suppress(Empty):
        return queue.get(timeout=POLL)
    return None


def agreed(devices: Sequence[Device], address: Address) -> Device:
    """The device of all workers, with the fewest cores that one has; TargetError when they cannot measure together."""
    here = _comparable(versions())
    for other in devices:
        wrong = {name: version for name, version in _comparable(other.versions).items() if here.get(name) != version}
        if wrong:
            theirs = ", ".join(f"{name} {version}" for name, version in wrong.items())
            ours = ", ".join(f"{name} {here.get(name, 'missing')}" for name in wrong)
            raise TargetError(f"the worker on {other} has {theirs}, this machine has {ours}; install the same on both")
    if len({d.kind for d in devices}) > 1:
        listed = ", ".join(sorted({str(d) for d in devices}))
        raise TargetError(
            f"the workers of {address} are of different kinds, whose times cannot be compared: {listed}; start each "
            "with --device NAME, and tune on dask://host:port/NAME"
        )
    return min(devices, key=lambda d: d.target.cores)


def _ours(error: Exception, address: Address) -> TensorlangError:
    """What a call raised on a worker, as an error of ours."""
    if isinstance(error, TensorlangError):
        return error
    if isinstance(error, broker.OtherDevice):
        return WorkersLost(
            f"a worker of another kind joined {address}: {error}; its times cannot be compared with those before. "
            "Start it with a --device NAME of its own"
        )
    return WorkersLost(f"a worker of {address} failed: {type(error).__name__}: {error}")


def _comparable(found: Json) -> Json:
    """Versions that must be equal on both sides; of Python, major and minor."""
    return found | {"python": ".".join(found["python"].split(".")[:2])}
