"""Workers of tuners that begin as forks of one process, which has imported all that they need.

A fresh interpreter takes a second to import this package, and tests of tuners start two hundred. What a worker does,
and how it ends, is the same; `tests/autotune/measuring/test_pool.py` starts some as users have them.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

from tensorlang.autotune.measuring import pool, worker
from tensorlang.autotune.measuring.launching import ARMED
from tensorlang.autotune.measuring.messages import framed
from tensorlang.target import detect
from tests.llvm_builds import build_quickly

_ROOT = str(Path(__file__).parents[1])
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_NAME = 15  # PR_SET_NAME
FORKED = "forked worker"
"""What the system calls them."""
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""What libraries look at when they are loaded."""
COMMAND = ["env", *(f"{name}=1" for name in _THREADS), sys.executable, "-m", "tests.forked_workers", "command"]
"""Before the words behind `tensorlang`: a process that forks its workers."""
_lock = threading.Lock()
SMALL_CACHES = (32 << 10, 1 << 20, 8 << 20)
"""To measure bandwidths, and to flush, takes seconds where the last cache holds half a gigabyte."""


class Spawner:
    """A process that forks workers, and the connection to it."""

    def __init__(self, connection: socket.socket, process: subprocess.Popen[bytes] | Forked) -> None:
        self._connection, self._process = connection, process

    @classmethod
    def fresh(cls, threads: str) -> Spawner:
        """A new interpreter, whose libraries have so many threads."""
        ours, theirs = socket.socketpair()
        path = os.pathsep.join(filter(None, (_ROOT, os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, **dict.fromkeys(_THREADS, threads), "PYTHONPATH": path}
        with theirs:
            command = [sys.executable, "-m", "tests.forked_workers", "serve", str(theirs.fileno())]
            nothing = subprocess.DEVNULL
            process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], env=environment, stdin=nothing, stdout=nothing, stderr=nothing
            )
        return cls(ours, process)

    @classmethod
    def of_this_process(cls) -> Spawner:
        """A fork of this process, which has run nothing yet."""
        ours, theirs = socket.socketpair()
        _import_all()
        if pid := os.fork():
            theirs.close()
            return cls(ours, Forked(pid))
        try:
            ours.close()
            for stream in range(3):
                os.dup2(os.open(os.devnull, os.O_RDWR), stream)
            serve(theirs, sys.path[1:])
        finally:
            os._exit(0)

    def start(
        self, program: str, descriptors: Sequence[int], arguments: Sequence[str], environment: Mapping[str, str]
    ) -> Forked:
        """Start a program of PROGRAMS, as a child of this process and in its folder, with descriptors of it."""
        asked = json.dumps([program, os.getpid(), str(Path.cwd()), list(arguments), dict(environment)]).encode()
        with _lock, _adopting():
            socket.send_fds(self._connection, [len(asked).to_bytes(8, "little")], descriptors)
            self._connection.sendall(asked)
            return Forked(int.from_bytes(self._connection.recv(8), "little"))

    def close(self) -> None:
        """End the process; workers live on."""
        self._connection.close()
        self._process.wait()


@contextmanager
def _adopting() -> Iterator[None]:
    """Orphans among the descendants of this process become its children."""
    libc = ctypes.CDLL(None)
    libc.prctl(_SUBREAPER, 1)
    try:
        yield
    finally:
        libc.prctl(_SUBREAPER, 0)


class Forked:
    """A child, with what `Worker` takes of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, if it has ended; 0 where somebody else has asked for it, as `Popen` says."""
        if self.returncode is None:
            try:
                ended, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                ended, status = self.pid, 0
            self.returncode = os.waitstatus_to_exitcode(status) if ended else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; TimeoutExpired after `timeout` seconds without one."""
        if self.poll() is None:
            descriptor = os.pidfd_open(self.pid)
            try:
                with selectors.DefaultSelector() as selector:
                    selector.register(descriptor, selectors.EVENT_READ)
                    selector.select(timeout)
            finally:
                os.close(descriptor)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired("a worker", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, if there is somebody to get it."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it."""
        self.send_signal(9)


class Spawners:
    """Takes the place of `launch`: a spawner for each number of threads."""

    def __init__(self, made: Mapping[str, Spawner] | None = None) -> None:
        self._spawners = dict(made or {})

    def launch(
        self, module: str, arguments: Sequence[str], descriptor: int, environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        """Start a worker."""
        spawner = self._spawner(environment.get(_THREADS[0], "1"))
        made = spawner.start("worker", [descriptor], arguments[1:], environment)
        return cast("subprocess.Popen[bytes]", made)

    def run(
        self, script: Path, folder: Path, environment: Mapping[str, str], seconds: float = 300.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a script in a folder, as `run` does; TimeoutExpired for one that takes longer."""
        return _completed(self._spawner("1"), "run", [str(script)], folder, environment, seconds)

    def close(self) -> None:
        """End the spawners."""
        for spawner in self._spawners.values():
            spawner.close()

    def _spawner(self, threads: str) -> Spawner:
        with _lock:
            if threads not in self._spawners:
                self._spawners[threads] = Spawner.fresh(threads)
        return self._spawners[threads]


@contextmanager
def forked(made: Mapping[str, Spawner] | None = None) -> Iterator[Spawners]:
    """Let pools fork their workers, with what is yielded."""
    spawners, before = Spawners(made), getattr(pool, "launch")  # noqa: B009
    setattr(pool, "launch", spawners.launch)  # noqa: B010
    try:
        yield spawners
    finally:
        setattr(pool, "launch", before)  # noqa: B010
        spawners.close()


def _of_this_process() -> dict[str, Spawner]:
    """The spawner of a process that runs a script or COMMAND; what comes after may have as many threads as it likes."""
    made = Spawner.of_this_process()
    for name in _THREADS:
        os.environ.pop(name, None)
    return {"1": made}


def run(script: str) -> None:
    """Run a script as `python script` does, but that its workers are forked, and its command lines."""
    sys.argv, sys.path[0] = [script], str(Path(script).parent)
    original, spawners = subprocess.run, _of_this_process()

    def started(command: list[str], **options: Any) -> Any:
        if command[1:3] != ["-m", "tensorlang"]:
            return original(command, **options)
        folder, environment = Path(options.get("cwd") or "."), {"PYTHONPATH": _ROOT, **os.environ}
        done = _completed(spawners["1"], "command", command[3:], folder, environment)
        if options["check"]:
            done.check_returncode()
        return done

    setattr(subprocess, "run", started)  # noqa: B010
    with forked(spawners):
        runpy.run_path(script, run_name="__main__")


def _completed(
    spawner: Spawner,
    program: str,
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    seconds: float = 300.0,
) -> subprocess.CompletedProcess[str]:
    """What a program of PROGRAMS prints, and its errors, as `subprocess.run` tells."""
    with ExitStack() as stack:
        streams = [stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8")) for _ in range(2)]
        with contextlib.chdir(folder):
            process = spawner.start(program, [f.fileno() for f in streams], arguments, environment)
        stack.callback(process.kill)
        code = process.wait(seconds)
        for stream in streams:
            stream.seek(0)
        return subprocess.CompletedProcess([*arguments], code, *(stream.read() for stream in streams))


def command(words: list[str]) -> None:
    """Run the command line with forked workers."""
    sys.argv = ["tensorlang", *words]
    with forked(_of_this_process()):
        runpy.run_module("tensorlang", run_name="__main__", alter_sys=True)


def serve(connection: socket.socket, path: Sequence[str]) -> None:
    """Fork a program for each request, until the other end closes; `path`: where modules are beside PYTHONPATH."""
    path = [entry for entry in path if entry != _ROOT]
    while True:
        length, descriptors, *_ = socket.recv_fds(connection, 8, 2)
        if not length:
            return
        asked = b""
        while len(asked) < int.from_bytes(length, "little"):
            asked += connection.recv(1 << 20)
        program, parent, folder, arguments, environment = json.loads(asked)
        ours, theirs = os.pipe()
        if not (between := os.fork()):  # ends at once, so that the process above adopts what it forks
            if pid := os.fork():
                os.write(theirs, pid.to_bytes(8, "little"))
                os._exit(0)
            connection.close()
            os.close(ours)
            os.close(theirs)
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(environment)
            sys.path[:] = [*filter(None, environment["PYTHONPATH"].split(os.pathsep)), *path]
            _run(program, parent, descriptors, arguments)
        os.waitpid(between, 0)
        connection.sendall(os.read(ours, 8))
        for descriptor in (ours, theirs, *descriptors):
            os.close(descriptor)


def _run(program: str, parent: int, descriptors: list[int], arguments: list[str]) -> None:
    """Be a program, when it has got its parent, and end."""
    code = 1
    try:
        while os.getppid() != parent:
            time.sleep(0.0002)
        PROGRAMS[program](parent, descriptors, arguments)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


def _worker(parent: int, descriptors: list[int], arguments: list[str]) -> None:
    """A worker, with what its launcher does first; it measures bandwidths as on a machine with small caches.

    Of the kernels that it builds few are optimised.
    """
    (descriptor,) = descriptors
    libc = ctypes.CDLL(None)
    libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    libc.prctl(_NAME, FORKED.encode())
    os.write(descriptor, framed(ARMED))
    setattr(detect, "cache_sizes", lambda: SMALL_CACHES)  # noqa: B010
    build_quickly()
    worker.main([str(parent), str(descriptor), *arguments])


def _script(parent: int, descriptors: list[int], arguments: list[str]) -> None:
    """A script, with descriptors for what it prints and for errors."""
    _print_to(descriptors)
    sys.path.insert(0, "")
    run(*arguments)


def _command(parent: int, descriptors: list[int], arguments: list[str]) -> None:
    """The command line, with descriptors for what it prints and for errors."""
    _print_to(descriptors)
    command(arguments)


def _print_to(descriptors: Sequence[int]) -> None:
    for number, descriptor in enumerate(descriptors, start=1):
        os.dup2(descriptor, number)
    for stream in (sys.stdout, sys.stderr):
        cast(io.TextIOWrapper, stream).reconfigure(encoding="utf-8")


PROGRAMS: dict[str, Callable[[int, list[int], list[str]], None]] = {
    "worker": _worker,
    "command": _command,
    "run": _script,
}
"""What a spawner forks: functions of the process that asked, descriptors of it, and arguments."""


def _import_all() -> None:
    """Import what workers need."""
    import tensorlang.cli.tune
    import tensorlang.target.interpreter.backend
    import tensorlang.target.llvm.compiling  # noqa: F401 - and with it the compiler


def main(descriptor: int) -> None:
    """Import what workers need, and serve."""
    _import_all()
    with socket.socket(fileno=descriptor) as connection:
        serve(connection, sys.path)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", descriptor]:
            main(int(descriptor))
        case ["command", *words]:
            command(words)
