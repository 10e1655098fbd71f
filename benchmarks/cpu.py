"""`python -m benchmarks cpu` and `operators`: workloads beside every installed peer, and the limits of the machine."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from benchmarks import vocabulary, workloads
from benchmarks.command_line import threads_or_all, write_result
from benchmarks.contest import OWN_NAME, Outcome, compete, save
from benchmarks.contestant import Absent, Contestant
from benchmarks.limits import Machine
from benchmarks.machine import describe
from benchmarks.means import means
from benchmarks.peers.libraries import BY_KEY, CORETYPES, NUMPY, OWN, Library, interpreters, numpy
from benchmarks.peers.process import pinned
from benchmarks.workloads import Contested, square
from tensorlang.target import Target

ROUNDS = 15
CORETYPE_ROUNDS = 5


def contest(name: str, chosen: Callable[[str], Sequence[Contested]]) -> click.Command:
    """A command that times the workloads which a pattern chooses."""

    @click.command(name)
    @click.option("--threads", type=click.IntRange(1), help="Threads, and cores that all are pinned to (default: all).")
    @click.option("--only", default="", metavar="PATTERN", help="Workloads whose names hold this: matmul, conv-*-relu.")
    @click.option("--peer", "keys", multiple=True, type=click.Choice(list(BY_KEY)), help="Only these peers.")
    @click.option("--python", "paths", multiple=True, metavar="PEER=PATH", help="The Python that has a peer.")
    @click.option(
        "--rounds", default=ROUNDS, show_default=True, type=click.IntRange(1), help="Turns of each contestant."
    )
    @click.option("--json", "out", type=click.Path(dir_okay=False, path_type=Path), help="Write the result to a file.")
    def command(
        threads: int | None, only: str, keys: Sequence[str], paths: Sequence[str], rounds: int, out: Path | None
    ) -> None:
        """Time every workload beside every installed peer, in turn; exit code 1 when a goal is missed."""
        contested = chosen(only)
        if not contested:
            raise click.UsageError(f"no workload is called like {only!r}")
        count = threads_or_all(threads)
        with pinned(count):
            result = run(contested, keys or list(BY_KEY), _paths(paths), count, rounds)
        write_result(out, result)
        sys.exit(0 if result["met"] else 1)

    return command


command = contest("cpu", workloads.chosen)
operators = contest("operators", vocabulary.chosen)


def run(
    contested: Sequence[Contested], keys: Sequence[str], paths: dict[str, str], threads: int, rounds: int
) -> dict[str, Any]:
    """The result as it is stored; every workload is printed as soon as it is measured."""
    machine = Machine(Target("llvm"), threads)
    with ExitStack() as stack:
        found, missing, versions = _installed(keys, interpreters(paths))
        for name, why in missing.items():
            click.echo(f"{name}: {why}")
        contestants = [stack.enter_context(Contestant(OWN, sys.executable, threads))]
        for library, interpreter in found:
            if library is NUMPY:
                library = best_numpy(interpreter, machine)
            contestants.append(stack.enter_context(Contestant(library, interpreter, threads)))
        outcomes = []
        for workload in contested:
            outcomes.append(compete(workload, contestants, rounds, machine, click.echo))
            click.echo(row(outcomes[-1]))
    groups = means(outcomes)
    for mean in groups:
        click.echo(str(mean))
    return {
        **describe(versions),
        "threads": threads,
        "rounds": rounds,
        "missing": missing,
        "workloads": [asdict(o) | {"share": o.share, "met": o.met} for o in outcomes],
        "means": [asdict(mean) | {"met": mean.met} for mean in groups],
        "met": all(o.met for o in outcomes) and all(mean.met for mean in groups),
    }


def best_numpy(interpreter: str, machine: Machine) -> Library:
    """NumPy with the kernels of its OpenBLAS that multiply fastest."""
    seconds = {}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        workload, folder = square(512), Path(name)
        save(workload.inputs(), folder)
        for coretype in CORETYPES:
            contestant = stack.enter_context(Contestant(numpy(coretype), interpreter, machine.threads))
            if not isinstance(contestant.prepare(workload, folder), Absent):
                contestant.result(folder / "result.npy")
                seconds[coretype] = min(contestant.time() for _ in range(CORETYPE_ROUNDS))
    return numpy(min(seconds, key=seconds.__getitem__))


def row(outcome: Outcome) -> str:
    """The figures of a workload in one line."""
    own = outcome.seconds.get(OWN_NAME)
    if own is None:
        why = outcome.absent.get(OWN_NAME)
        return f"{outcome.workload:<30} MISSED: {why.reason if why else 'no figure'}"
    text = f"{outcome.workload:<30} {1e3 * own:>9.4g} ms {outcome.operations / own / 1e9:>7.1f} GFLOP/s"
    text += f" {outcome.limit_seconds / own:>5.2f} of {outcome.binds:<10}"
    if outcome.ratio is not None:
        text += f" {outcome.ratio:>6.2f} x {outcome.best_peer} (at least {outcome.goal:g})"
    return text if outcome.met else f"{text} MISSED"


def _installed(
    keys: Sequence[str], paths: Mapping[str, str]
) -> tuple[list[tuple[Library, str]], dict[str, str], dict[str, str]]:
    """The peers that can run, with their interpreters; why others cannot; the versions of all packages."""
    found, missing, versions = [], dict[str, str](), dict[str, str]()
    for key in dict.fromkeys(keys):
        library, interpreter = BY_KEY[key], paths[key]
        have = library.versions(interpreter)
        if isinstance(have, str):
            missing[library.name] = have
        else:
            found.append((library, interpreter))
            versions.update(have)
    return found, missing, versions


def _paths(texts: Sequence[str]) -> dict[str, str]:
    """What `--python PEER=PATH` says."""
    pairs = [text.partition("=") for text in texts]
    for key, equals, path in pairs:
        if key not in BY_KEY or not equals or not path:
            raise click.UsageError(f"--python wants PEER=PATH with one of {', '.join(BY_KEY)}, got {key}{equals}{path}")
    return {key: path for key, _, path in pairs}
