"""A Dask worker with what the broker needs: one thread, its device as a resource, and a nanny that restarts it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from tensorlang.autotune.cluster.address import (
    Address,
    ConnectionRefused,
    Tls,
    require_distributed,
    require_private,
    security_of,
)
from tensorlang.runtime.temporary import TemporaryFolder

PATIENCE = 30


def serve(
    address: Address,
    threads: int | None = None,
    tls: Tls | None = None,
    ready: Callable[[], object] | None = None,
    patience: float = PATIENCE,
) -> None:
    """Measure for the scheduler at `address` until it goes away, or until Ctrl-C.

    `address.device` is the name that this worker's device gets. `threads`: the most that kernels may use (None: the
    CPUs that this process may use). `ready` is called when the scheduler has accepted us. Raises ConnectionRefused when
    there is no scheduler within `patience` seconds.
    """
    require_distributed()
    require_private(address, tls)
    asyncio.run(_serve(address, threads, tls, ready, patience))


async def _serve(
    address: Address, threads: int | None, tls: Tls | None, ready: Callable[[], object] | None, patience: float
) -> None:
    distributed = require_distributed()
    import dask

    logging.getLogger("distributed").setLevel(logging.ERROR)
    # In place of Dask's own, which allows libraries, and so kernels, one thread.
    environment = {"DASK_LOGGING__DISTRIBUTED": "error"}
    if threads is not None:
        environment["TENSORLANG_NUM_THREADS"] = str(threads)
    with (
        TemporaryFolder("worker") as folder,
        dask.config.set({"distributed.nanny.pre-spawn-environ": environment}),
    ):
        nanny = distributed.Nanny(
            address.url(tls),
            nthreads=1,
            resources=address.resources,
            security=security_of(tls),
            memory_limit=None,
            dashboard=False,
            local_directory=folder,
            death_timeout=patience,
            **({"host": "127.0.0.1"} if tls is None else {}),
        )
        try:
            await asyncio.wait_for(nanny, patience)
        except (OSError, TimeoutError) as error:
            await nanny.close(timeout=2)
            raise ConnectionRefused(
                f"no scheduler answers at {address}; start one there with: dask scheduler --port {address.port}"
            ) from error
        if ready is not None:
            ready()
        await nanny.finished()
