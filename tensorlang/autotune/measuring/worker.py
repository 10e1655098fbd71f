"""The program of a worker process: receive a call, run it, send back what came of it."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import sys
from typing import Any

from tensorlang.autotune.measuring.launching import die_with
from tensorlang.autotune.measuring.messages import receive, send
from tensorlang.autotune.records.record import Status
from tensorlang.errors import InternalError, KernelError, ScheduleError, TensorlangError

READY = b"ready"


def _limit_process(cpus: list[int], memory_bytes: int) -> None:
    """Leave Ctrl-C to the parent, write no core files, stay on the given CPUs and within memory."""
    import resource

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory_bytes:
        with contextlib.suppress(ValueError, OSError):  # some systems know no such limit
            resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    if cpus and sys.platform == "linux":
        os.sched_setaffinity(0, cpus)


def _call(payload: bytes) -> tuple[Status, Any, str]:
    try:
        function, args = pickle.loads(payload)
        return Status.OK, function(*args), ""
    except MemoryError:
        return Status.MEMORY, None, "out of memory"
    except ScheduleError as error:
        return Status.ILLEGAL, None, str(error)
    except KernelError as error:
        return Status.RUN_ERROR, None, f"{type(error).__name__}: {error}"
    except InternalError as error:
        return Status.BUILD_ERROR, None, str(error)
    except TensorlangError as error:
        return Status.BUILD_ERROR, None, f"{type(error).__name__}: {error}"
    except Exception as error:
        return Status.RUN_ERROR, None, f"{type(error).__name__}: {error}"


def serve(connection: socket.socket) -> None:
    """Say that we are here, then answer calls until the other end closes."""
    send(connection, READY)
    with connection.makefile("rb") as stream:
        while True:
            try:
                payload = receive(stream)
            except EOFError:
                return
            send(connection, pickle.dumps(_call(payload)))


def main(arguments: list[str]) -> None:
    """Run a worker: the process that it dies with, descriptor of the connection, CPUs, bytes of memory."""
    parent, descriptor, cpus, memory_bytes = arguments
    die_with(int(parent))
    _limit_process([int(c) for c in cpus.split(",") if c], int(memory_bytes))
    with socket.socket(fileno=int(descriptor)) as connection:
        serve(connection)


if __name__ == "__main__":
    main(sys.argv[1:])
