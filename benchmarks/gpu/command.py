"""`python -m benchmarks gpu`: conformance, kernels beside the vendor's libraries, and what runs without a GPU."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

import click
from rich.console import Console

from benchmarks.command_line import write_result
from benchmarks.gpu import jobs, tables
from benchmarks.gpu.compiled import ARCHITECTURES, Resources
from benchmarks.gpu.conformance import CUDA_TESTS, ON_A_GPU, WITHOUT, Check, Checked, check
from benchmarks.gpu.contest import Outcome
from benchmarks.gpu.device import why_no_device
from benchmarks.gpu.peers import LIBRARIES
from benchmarks.gpu.worker import Failed, Worker
from benchmarks.gpu.workloads import Workload, chosen
from benchmarks.machine import describe
from tensorlang.target.cuda import nvrtc

MINUTES = 9.0
CHECK_SHARE = 0.4
"""Of the time for a run, at most, that the tests take."""
LEAST_SECONDS = 5.0
"""A workload with less time than this is not begun."""
GRACE = 10.0
"""Seconds that a workload may take longer than it was given: a process and its libraries have to start, too."""
_WIDTH = 180
"""Columns of what is not printed to a terminal."""
NO_GPU = 2
"""The exit code where nothing can be measured."""


class Processes(Protocol):
    """What runs work in a process of its own."""

    def run(self, seconds: float, work: Callable[..., Any], *arguments: Any) -> Any:
        """The result; Failed with the reason."""

    def renew(self) -> None:
        """Do what comes next in a new process."""


@dataclass(slots=True)
class Run:
    """A run: its end on the clock, where it is printed, and what it has found."""

    end: float
    console: Console
    clock: Callable[[], float] = time.monotonic
    device: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)
    checked: list[Checked] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    compiled: list[Resources] = field(default_factory=list)

    @property
    def left(self) -> float:
        """Seconds until the end."""
        return self.end - self.clock()

    @property
    def good(self) -> bool:
        """Whether nothing failed."""
        failed = [o for o in self.outcomes if o.problem] + [r for r in self.compiled if r.problem]
        return not failed and all(checked.good for checked in self.checked)

    def conformance(self, tests: Check, on_gpu: bool) -> None:
        """Run the tests that can be run here."""
        name, paths, marks = ("cuda", ON_A_GPU, CUDA_TESTS) if on_gpu else ("opencl, interpreter", WITHOUT, "")
        self.console.print(f"conformance of {name}", highlight=False)
        self.checked.append(tests(name, paths, marks, CHECK_SHARE * self.left))
        self.console.print(tables.conformance(self.checked[-1:]))

    def measure(self, workloads: Sequence[Workload], processes: Processes) -> None:
        """Measure the workloads; what time one leaves is for those after it."""
        self.device = self._described(processes)
        for number, workload in enumerate(workloads):
            outcome = self._measured(workload, self.left / (len(workloads) - number), processes)
            self.outcomes.append(outcome)
            text = outcome.problem or f"{tables.duration(outcome.seconds[outcome.best])}"
            share = "" if outcome.share is None else f", {outcome.share:.2f} of {outcome.against}"
            self.console.print(f"{workload.name}: {text}{share}", highlight=False)
        self.after = self._described(processes)

    def _measured(self, workload: Workload, seconds: float, processes: Processes) -> Outcome:
        if seconds < LEAST_SECONDS:
            return _failed(workload, "no time left for it")
        try:
            found: Outcome = processes.run(seconds + GRACE, jobs.measured, workload.name, seconds)
        except Failed as problem:
            return _failed(workload, str(problem))
        if found.problem:
            processes.renew()  # a fault has cost the process its device
        return found

    def _described(self, processes: Processes) -> dict[str, Any]:
        try:
            found: dict[str, Any] = processes.run(6 * GRACE, jobs.describe)
        except Failed as problem:
            return {"problem": str(problem)}
        return found

    def compile(self, workloads: Sequence[Workload], processes: Processes) -> None:
        """Compile all schedules of the workloads for all architectures."""
        pairs = [(workload, architecture) for workload in workloads for architecture in ARCHITECTURES]
        for number, (workload, architecture) in enumerate(pairs):
            seconds = max(LEAST_SECONDS, self.left / (len(pairs) - number))
            try:
                rows = processes.run(seconds + GRACE, jobs.compiled, workload.name, architecture)
            except Failed as problem:
                rows = [Resources(workload.name, "", architecture, problem=str(problem))]
            self.compiled += rows
            words = [row.problem or f"{row.registers} registers, {row.spills} bytes spilled" for row in rows]
            self.console.print(f"{workload.name} for {architecture}: {'; '.join(words)}", highlight=False)

    def result(self) -> dict[str, Any]:
        """All that was found, as JSON values."""
        return {
            **describe(_versions()),
            "device": self.device,
            "device_afterwards": self.after,
            "conformance": [asdict(c) | {"good": c.good} for c in self.checked],
            "workloads": [asdict(o) for o in self.outcomes],
            "compiled": [asdict(r) for r in self.compiled],
            "good": self.good,
        }

    def show(self) -> None:
        """Print the tables."""
        if self.compiled:
            self.console.print(tables.kernels(self.compiled))
        if self.checked:
            self.console.print(tables.conformance(self.checked))
        if self.outcomes:
            self.console.print(f"on {self.device.get('name', 'an unknown device')}", highlight=False)
            self.console.print(tables.speeds(self.outcomes))


@click.command("gpu")
@click.option("--only", default="", metavar="PATTERN", help="Workloads whose names hold this: matmul, conv-*.")
@click.option("--check", "checks", is_flag=True, help="Run the conformance tests first.")
@click.option("--compile-only", is_flag=True, help="Only compile, and print what the kernels take; needs no GPU.")
@click.option("--quick", is_flag=True, help="Some of the workloads.")
@click.option("--minutes", default=MINUTES, show_default=True, type=click.FloatRange(min=0.0), help="Time for all.")
@click.option("--json", "out", type=click.Path(dir_okay=False, path_type=Path), help="Write the result to a file.")
def command(only: str, checks: bool, compile_only: bool, quick: bool, minutes: float, out: Path | None) -> None:
    """Time kernels on the CUDA device beside the vendor's libraries.

    Exit code 1 when something failed, 2 without a GPU. With --check, a machine without one runs what it can: the
    tests on OpenCL and on the interpreter, and the compilation of all kernels.
    """
    workloads = chosen(only, quick)
    if not workloads:
        raise click.UsageError(f"no workload{' of a quick run' if quick else ''} is called like {only!r}")
    missing = "" if compile_only else why_no_device()
    if missing:
        click.echo(f"No kernel can be measured here: {missing}", err=True)
    if (missing and not checks) or (compile_only and not nvrtc.is_available()):
        click.echo("With NVRTC (pip install nvidia-cuda-nvrtc) --compile-only works without a GPU.", err=True)
        sys.exit(NO_GPU)
    run = Run(time.monotonic() + 60 * minutes, Console(width=None if sys.stdout.isatty() else _WIDTH))
    with Worker() as processes:
        if checks:
            run.conformance(check, on_gpu=not missing and not compile_only)
        if compile_only or missing:
            run.compile(workloads if nvrtc.is_available() else (), processes)
        else:
            run.measure(workloads, processes)
    write_result(out, run.result())
    run.show()
    sys.exit(1 if not run.good else NO_GPU if missing else 0)


def _failed(workload: Workload, reason: str) -> Outcome:
    return Outcome(workload.name, workload.operations, workload.bytes, problem=reason)


def _versions() -> dict[str, str]:
    """Of the libraries that kernels are compared with, and of NVRTC where that is a wheel."""
    found: dict[str, str] = {}
    for library in LIBRARIES:
        found |= library.versions()
    for name in ("nvidia-cuda-nvrtc", "nvidia-cublas", "nvidia-cudnn-cu13"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
