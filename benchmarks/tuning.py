"""`python -m benchmarks tuning`: how soon the tuner finds what, beside the best schedules known and beside TVM's.

Every workload is searched once by each tuner, alone. What both have found after some seconds and some trials is then
checked and timed in turn, with the library's schedule and the best of earlier results.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from benchmarks import scoring, subjects
from benchmarks.command_line import threads_or_all, write_result
from benchmarks.contest import compete
from benchmarks.contestant import Contestant
from benchmarks.limits import Machine
from benchmarks.machine import describe
from benchmarks.peers.libraries import OWN, Library
from benchmarks.peers.process import pinned
from benchmarks.searches import TVM_SEARCH, Found, Search, first_picks, search_own, search_tvm
from benchmarks.subjects import Subject
from benchmarks.tuning_figures import LIBRARY, STORED, after_seconds, after_trials, figures, tvm_after
from benchmarks.workloads import Contested
from tensorlang.target import Target

RESULTS = Path(__file__).parent / "results"
ROUNDS = 15

TUNED = replace(OWN, module="benchmarks.tuned")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured. `tvm`: the interpreter that has it; `keep`: the folder of searches."""

    seconds: tuple[float, ...]
    trials: tuple[int, ...]
    threads: int
    rounds: int
    tvm: str | None
    keep: Path


def _numbers(context: click.Context, option: click.Parameter, text: str) -> tuple[float, ...]:
    try:
        found = tuple(sorted(float(word) for word in text.split(",")))
    except ValueError:
        found = ()
    if not found or found[0] <= 0:
        raise click.BadParameter(f"wanted numbers with commas between them, got {text!r}")
    return found


@click.command("tuning")
@click.option("--threads", type=click.IntRange(1), help="Threads of the kernels (default: all cores).")
@click.option("--only", default="", metavar="PATTERN", help="Workloads whose names hold this.")
@click.option("--seconds", default="30,120", show_default=True, callback=_numbers, help="Budgets, with commas.")
@click.option("--trials", default="64,128,256", show_default=True, callback=_numbers, help="Budgets, with commas.")
@click.option("--tvm", type=click.Path(exists=True, dir_okay=False), metavar="PYTHON", help="The Python that has TVM.")
@click.option("--rounds", default=ROUNDS, show_default=True, type=click.IntRange(1), help="Turns of every kernel.")
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="Folder of searches: those are reused.")
@click.option("--json", "out", type=click.Path(dir_okay=False, path_type=Path), help="Write the result to a file.")
def command(
    threads: int | None,
    only: str,
    seconds: tuple[float, ...],
    trials: tuple[float, ...],
    tvm: str | None,
    rounds: int,
    keep: Path | None,
    out: Path | None,
) -> None:
    """Tune every workload with tensorlang and TVM, and time what they found; exit code 1 when a goal is missed."""
    found = subjects.chosen(only)
    if not found:
        raise click.UsageError(f"no workload is called like {only!r}")
    count = threads_or_all(threads)
    with ExitStack() as stack:
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        plan = Plan(seconds, tuple(map(int, trials)), count, rounds, tvm, folder)
        result = run(found, plan)
    write_result(out, result)
    sys.exit(0 if all(f["met"] for f in result["figures"]) else 1)


def run(found: Sequence[Subject], plan: Plan) -> dict[str, Any]:
    """The result as it is stored; every workload is printed as soon as it is measured."""
    stored = best_traces(RESULTS, plan.threads)
    versions = {} if plan.tvm is None else _versions(plan.tvm)
    measured = []
    for subject in found:
        measured.append(measure(subject, plan, stored.get(subject.name)))
        times = ", ".join(f"{name} {1e3 * s:.4g}" for name, s in measured[-1]["seconds"].items())
        click.echo(f"{subject.name}, milliseconds: {times}")
    made = [*figures(measured, plan.seconds, plan.trials), *scoring.measure()]
    click.echo("\n".join(map(str, made)))
    return {
        **describe(versions),
        "kind": "tuning",
        "threads": plan.threads,
        "rounds": plan.rounds,
        "budgets": {"seconds": list(plan.seconds), "trials": list(plan.trials)},
        "workloads": measured,
        "figures": [asdict(f) | {"met": f.met} for f in made],
    }


def measure(subject: Subject, plan: Plan, stored: Any) -> dict[str, Any]:
    """Search with both tuners, and let the kernels that they found run in turn."""
    folder = plan.keep / f"{subject.name}-{plan.threads}"
    task = subject.task(plan.threads)
    found = search_own(task, max(plan.seconds), max(plan.trials), folder / "tensorlang")
    other: Search | None = None
    problem = ""
    if plan.tvm is not None:
        answer = search_tvm(subject, plan.threads, plan.trials, folder / "tvm", plan.tvm)
        other, problem = (None, answer) if isinstance(answer, str) else (answer, "")
    traces = {LIBRARY: None, **({} if stored is None else {STORED: stored})}
    traces |= first_picks(task) | chosen_traces(found, plan)
    kernels, same = distinct(traces)
    with ExitStack() as stack, pinned(plan.threads):
        contestants = [
            stack.enter_context(_Told(replace(TUNED, name=name), sys.executable, plan.threads, subject, options))
            for name, options in kernels.items()
        ]
        for trials in plan.trials if other is not None else ():
            module = folder / "tvm" / f"best-{trials}.json"
            if plan.tvm is not None and module.exists():
                library = replace(TVM_SEARCH, name=tvm_after(trials))
                told = {"module": str(module.absolute())}
                contestants.append(stack.enter_context(_Told(library, plan.tvm, plan.threads, subject, told)))
        machine = Machine(Target("llvm"), plan.threads)
        outcome = compete(subject.workload, contestants, plan.rounds, machine, click.echo)
    seconds = outcome.seconds | {name: outcome.seconds[twin] for name, twin in same.items() if twin in outcome.seconds}
    own = {name: value for name, value in seconds.items() if name in traces}
    best = min(own, key=own.__getitem__) if own else None
    return {
        "workload": subject.name,
        "operator": subject.operator,
        "sizes": list(subject.sizes),
        "operations": outcome.operations,
        "gflops": outcome.rates["gflops"],
        "seconds": seconds,
        "best": best,
        "best_trace": None if best is None else traces[best],
        "absent": {name: absent.reason for name, absent in outcome.absent.items()},
        "tvm_problem": problem,
        "failures": found.failures,
        "searches": {
            name: {
                "trials": len(search.trials),
                "failed": sum(t.seconds is None for t in search.trials),
                "seconds": search.trials[-1].elapsed if search.trials else 0.0,
                "per_minute": {str(n): search.per_minute(n) for n in plan.trials},
                "improvements": search.improvements(),
            }
            for name, search in {"tensorlang": found.search, "TVM": other}.items()
            if search is not None
        },
    }


class _Told(Contestant):
    """A contestant that is told which kernel to build."""

    def __init__(
        self, library: Library, interpreter: str, threads: int, subject: Subject, options: Mapping[str, Any]
    ) -> None:
        super().__init__(library, interpreter, threads)
        self._options = {"program": subject.operator, "sizes": list(subject.sizes), **options}
        self._subject = subject

    def prepare(self, workload: Contested, folder: Path) -> Any:
        """As others do, of the kernel in question."""
        return super().prepare(self._subject.variant(self._options), folder)


def chosen_traces(found: Found, plan: Plan) -> dict[str, Any]:
    """What a search had found after the seconds, and after the trials."""
    counts = {after_seconds(s): found.search.within(s) for s in plan.seconds}
    counts |= {after_trials(n): n for n in plan.trials}
    bests = {name: found.search.best(count) for name, count in counts.items()}
    return {name: found.traces[best] for name, best in bests.items() if best is not None}


def distinct(traces: Mapping[str, Any]) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """The options of the first kernel of each schedule, and for all others which one is the same."""
    kernels, same = dict[str, dict[str, Any]](), dict[str, str]()
    firsts: dict[str, str] = {}
    for name, trace in traces.items():
        first = firsts.setdefault(json.dumps(trace, sort_keys=True), name)
        if first == name:
            kernels[name] = {"trace": trace}
        else:
            same[name] = first
    return kernels, same


def best_traces(folder: Path, threads: int) -> dict[str, Any]:
    """The traces of the best schedules in stored results, by workload; the newest result counts."""
    found: dict[str, Any] = {}
    for file in sorted(folder.glob(f"*-tuning-{threads}.json")):
        for workload in json.loads(file.read_text(encoding="utf-8"))["workloads"]:
            if workload["best_trace"] is not None:
                found[workload["workload"]] = workload["best_trace"]
    return found


def _versions(interpreter: str) -> dict[str, str]:
    have = TVM_SEARCH.versions(interpreter)
    if isinstance(have, str):
        raise click.UsageError(f"--tvm {interpreter}: {have}")
    return have
