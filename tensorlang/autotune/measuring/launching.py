"""Starts worker processes that die with this one, however it ends: while they start, and while they are stopped.

Linux kills a process with the thread that started it, once it has asked for that. So a launcher asks, says so, and only
then becomes the worker, and all workers are started by one thread that lives as long as this process. Elsewhere a
worker looks whether its parent is still there.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeAlias

from tensorlang.autotune.measuring.messages import framed

ARMED = b"armed"
"""The first message of a worker: from now on it dies with its parent."""

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_LOOK_EVERY = 0.5
_LAUNCHER = f"""
import ctypes, os, sys
ctypes.CDLL(None).prctl({_DIE_WITH_PARENT}, {int(signal.SIGKILL)})
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.write(int(sys.argv[2]), {framed(ARMED)!r})
os.execv(sys.executable, [sys.executable, *sys.argv[3:]])
"""

_Process: TypeAlias = "subprocess.Popen[bytes]"
_Asked: TypeAlias = tuple["Future[_Process]", Sequence[str], int, Mapping[str, str]]


class _Starter:
    """The thread that starts processes, and what it is asked for."""

    def __init__(self) -> None:
        self.asked: SimpleQueue[_Asked] = SimpleQueue()
        threading.Thread(target=self._serve, name="tensorlang worker starter", daemon=True).start()

    def _serve(self) -> None:
        while True:
            future, command, descriptor, environment = self.asked.get()
            try:
                future.set_result(_start(command, descriptor, environment))
            except BaseException as error:
                future.set_exception(error)
            del future


_starters: list[_Starter] = []
_lock = threading.Lock()


def _forget() -> None:
    """A forked process has none of the threads of its parent."""
    global _lock
    _lock = threading.Lock()
    _starters.clear()


os.register_at_fork(after_in_child=_forget)


def launch(module: str, arguments: Sequence[str], descriptor: int, environment: Mapping[str, str]) -> _Process:
    """Start `python -m module parent arguments` with a socket's descriptor, at which it says when it is armed.

    `parent`: this process, which the module hands to `die_with`.
    """
    command = ["-m", module, str(os.getpid()), *arguments]
    if sys.platform != "linux":
        return _start([sys.executable, *command], descriptor, environment)
    command = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), str(descriptor), *command]
    with _lock:
        if not _starters:
            _starters.append(_Starter())
    future: Future[_Process] = Future()
    _starters[0].asked.put((future, command, descriptor, environment))
    return future.result()


def _start(command: Sequence[str], descriptor: int, environment: Mapping[str, str]) -> _Process:
    nothing = subprocess.DEVNULL
    return subprocess.Popen(
        command, pass_fds=[descriptor], stdin=nothing, stdout=nothing, stderr=nothing, env=dict(environment)
    )


def die_with(parent: int) -> None:
    """End this process with its parent. Executing a file with capabilities has undone what the launcher asked for."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:
        os._exit(1)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY)
    os._exit(1)
