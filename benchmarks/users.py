"""`python -m benchmarks users`: programs of users under `topi.schedule` alone, beside what the tuner finds for them."""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click
import numpy as np

import tensorlang
from benchmarks.command_line import write_result
from benchmarks.contest import SETTLE, largest_error
from benchmarks.machine import describe
from benchmarks.peers.process import pinned
from benchmarks.peers.serve import Array
from benchmarks.user_programs import PROGRAMS, Program, inputs
from tensorlang import topi
from tensorlang.autotune import task_of, tune
from tensorlang.schedule import Schedule

WORST, MEAN = 1.3, 1.15
"""Times of what the tuner finds: of each program, and in the geometric mean."""
TURN = 0.02
"""Seconds of a turn, at least one call."""
TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True)
class Outcome:
    """Milliseconds of both (medians), their ratio in the same turn (median), and what they are.

    `forms`: what topi.schedule took for each stage. `trials`: how many schedules the tuner measured.
    """

    program: str
    untuned: float
    tuned: float
    ratio: float
    forms: str
    trials: int

    @property
    def met(self) -> bool:
        """Whether nothing is lost by not tuning."""
        return self.ratio <= WORST

    def __str__(self) -> str:
        text = f"{self.program:<32} {self.untuned:>9.4g} ms  tuned {self.tuned:>9.4g} ms  ratio {self.ratio:>5.2f}"
        return f"{text}  {self.forms}{'' if self.met else '  MISSED'}"


@click.command("users")
@click.option("--seconds", default=120.0, show_default=True, help="Tuning time of each program.")
@click.option("--threads", default=1, show_default=True, type=click.IntRange(1), help="Threads of all kernels.")
@click.option("--only", multiple=True, type=click.Choice(list(PROGRAMS)), help="Only these programs.")
@click.option("--rounds", default=21, show_default=True, type=click.IntRange(1), help="Turns of both kernels.")
@click.option("--json", "out", type=click.Path(dir_okay=False, path_type=Path), help="Write the result to a file.")
def command(seconds: float, threads: int, only: Sequence[str], rounds: int, out: Path | None) -> None:
    """Time users' programs untuned and tuned, by turns; exit code 1 when one misses its goal."""
    outcomes = []
    with pinned(threads):
        for name in only or PROGRAMS:
            outcomes.append(measure(PROGRAMS[name], seconds, threads, rounds))
            click.echo(str(outcomes[-1]))
    mean = math.exp(statistics.fmean(math.log(o.ratio) for o in outcomes))
    met = mean <= MEAN and all(o.met for o in outcomes)
    click.echo(f"geometric mean {mean:.2f} (at most {MEAN}){'' if met else '  MISSED'}")
    if out is not None:
        result = {**describe(), "threads": threads, "seconds": seconds, "mean": mean}
        result["programs"] = [asdict(o) | {"met": o.met} for o in outcomes]
        write_result(out, result)
    sys.exit(0 if met else 1)


def measure(program: Program, seconds: float, threads: int, rounds: int, small: bool = False) -> Outcome:
    """One program; both kernels are checked before they are timed."""
    program = replace(program, sizes=program.small) if small else program
    sizes = program.sizes
    tensors, reference = program.make(*sizes)
    task = task_of(tensors, program.name, list(sizes), threads=threads)
    given = inputs(tensors)
    wanted = reference(*given)
    found = tune(task, trials=sys.maxsize, seconds=seconds)
    assert found.best is not None
    untuned = topi.schedule(tensors[-1], task.target, tuned=False)
    kernels = [kernel(s, tensors, given, wanted) for s in (untuned, tensorlang.autotune.replay(found.best, task))]
    turns = np.asarray([[_seconds(kernel) for kernel in kernels] for _ in range(rounds)])
    plain, tuned = np.median(turns, 0) * 1e3
    ratio = float(np.median(turns[:, 0] / turns[:, 1]))
    forms = ", ".join(f"{note.stage}: {note.form}" for note in untuned.forms)
    return Outcome(str(program), float(plain), float(tuned), ratio, forms, len(found.records))


def kernel(s: Schedule, tensors: list[tensorlang.te.Tensor], given: list[Array], wanted: Array) -> Callable[[], None]:
    """A compiled schedule on these arrays; its result is right."""
    run = tensorlang.build(s, tensors)
    made = np.empty(wanted.shape, tensors[-1].dtype)
    run(*given, made)
    error = largest_error(made, wanted)
    if not error <= TOLERANCE:
        raise AssertionError(f"{tensors[-1].op.name} is off by {error:g}")
    return lambda: run(*given, made)


def _seconds(call: Callable[[], None]) -> float:
    """Of a call, the mean over a turn."""
    time.sleep(SETTLE)
    call()
    start, count = time.perf_counter(), 0
    while (took := time.perf_counter() - start) < TURN:
        call()
        count += 1
    return took / max(1, count)
