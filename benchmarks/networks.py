"""`python -m benchmarks networks`: whole networks beside other runtimes, with their memory and their starts."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from benchmarks.command_line import threads_or_all, write_result
from benchmarks.contest import OWN_NAME, Outcome, compete
from benchmarks.contestant import Absent, Contestant
from benchmarks.cpu import ROUNDS, row
from benchmarks.limits import Machine
from benchmarks.machine import describe
from benchmarks.network_models import MODELS, NetworkModel, chosen
from benchmarks.operators import Array
from benchmarks.peers.libraries import OWN, Library
from benchmarks.peers.process import pinned
from benchmarks.workloads import Contested
from tensorlang.target import Target

OWN_NETWORKS = replace(OWN, module="benchmarks.own_networks", environment={"TENSORLANG_CACHE": "1"})
LIBRARIES = (
    Library("onnxruntime", "onnxruntime", "benchmarks.peers.onnx_runtime_networks", ("onnxruntime",)),
    Library("openvino", "OpenVINO", "benchmarks.peers.openvino_networks", ("openvino",)),
    Library("torch", "PyTorch compiled", "benchmarks.peers.torch_networks", ("torch",)),
)
BY_KEY = {library.key: library for library in LIBRARIES}
STARTS = 2


@click.command("networks")
@click.option("--threads", type=click.IntRange(1), help="Threads, and cores that all are pinned to (default: all).")
@click.option("--only", default="", metavar="PATTERN", help="Networks whose names hold this: resnet, squeezenet.")
@click.option("--peer", "keys", multiple=True, type=click.Choice(list(BY_KEY)), help="Only these peers.")
@click.option("--python", "paths", multiple=True, metavar="PEER=PATH", help="The Python that has a peer.")
@click.option("--rounds", default=ROUNDS, show_default=True, type=click.IntRange(1), help="Turns of every contestant.")
@click.option("--json", "out", type=click.Path(dir_okay=False, path_type=Path), help="Write the result to a file.")
def command(
    threads: int | None, only: str, keys: Sequence[str], paths: Sequence[str], rounds: int, out: Path | None
) -> None:
    """Time whole networks beside every installed peer, in turn; exit code 1 when a goal is missed.

    Results are checked first. Each contestant starts twice, from nothing and again: the time until its first result
    counts, libraries and all, and the most memory of its process.
    """
    models = chosen(only)
    if not models:
        raise click.UsageError(f"no network is called like {only!r}; there are {', '.join(m.name for m in MODELS)}")
    count = threads_or_all(threads)
    interpreters = dict.fromkeys(BY_KEY, sys.executable) | dict(_given(text) for text in paths)
    with pinned(count):
        result = run(models, {key: interpreters[key] for key in keys or BY_KEY}, count, rounds)
    write_result(out, result)
    sys.exit(0 if result["met"] else 1)


def run(models: Sequence[NetworkModel], peers: Mapping[str, str], threads: int, rounds: int) -> dict[str, Any]:
    """The result as it is stored; every network is printed as soon as it is measured. `peers`: interpreters by key."""
    machine, found = Machine(Target("llvm"), threads), list[dict[str, Any]]()
    missing, versions = dict[str, str](), dict[str, str]()
    with ExitStack() as stack:
        contestants = [stack.enter_context(NetworkContestant(OWN_NETWORKS, sys.executable, threads))]
        for key, interpreter in peers.items():
            have = BY_KEY[key].versions(interpreter)
            if isinstance(have, str):
                missing[BY_KEY[key].name] = have
                click.echo(f"{BY_KEY[key].name}: {have}")
                continue
            versions |= have
            contestants.append(stack.enter_context(NetworkContestant(BY_KEY[key], interpreter, threads)))
        for model in models:
            outcome = _measured(model, contestants, rounds, machine)
            if isinstance(outcome, Absent):
                missing[model.name] = outcome.reason
                click.echo(f"{model.name}: {outcome.reason}")
            else:
                found.append(outcome)
    return {
        **describe(versions),
        "threads": threads,
        "rounds": rounds,
        "missing": missing,
        "networks": found,
        "met": all(network["met"] for network in found),
    }


class NetworkContestant(Contestant):
    """A contestant whose process begins anew for each network: `starts` in seconds, and the `memory_bytes` it took."""

    def __init__(self, library: Library, interpreter: str, threads: int) -> None:
        super().__init__(library, interpreter, threads)
        self.starts: list[float] = []
        self.memory_bytes = 0

    def prepare(self, workload: Contested, folder: Path) -> float | Absent:
        """Start, twice: from nothing, and with what the first start has kept; the seconds of building alone."""
        self.starts = []
        made: float | Absent = Absent("never started")
        for _ in range(STARTS):
            self.close()
            begun = time.perf_counter()
            made = super().prepare(workload, folder)
            if isinstance(made, Absent):
                break
            self.starts.append(time.perf_counter() - begun)
        return made

    def result(self, file: Path) -> Array:
        """See Contestant."""
        found = super().result(file)
        self.memory_bytes = self.memory()
        return found


def _measured(
    model: NetworkModel, contestants: Sequence[NetworkContestant], rounds: int, machine: Machine
) -> dict[str, Any] | Absent:
    """The figures of a network, which is written for it, with a cache of kernels that begins empty."""
    with tempfile.TemporaryDirectory() as name:
        work = model.made(Path(name))
        if isinstance(work, Absent):
            return work
        for contestant in contestants:
            cache = {"TENSORLANG_CACHE_DIR": str(Path(name, "cache"))}
            contestant.library = replace(contestant.library, environment={**contestant.library.environment, **cache})
        outcome = compete(work, contestants, rounds, machine, click.echo)
    running = [c for c in contestants if c.name in outcome.seconds]
    starts, memory = ({c.name: getattr(c, fact) for c in running} for fact in ("starts", "memory_bytes"))
    click.echo(row(outcome))
    for contestant in running:
        click.echo(_line(contestant, outcome))
    return {**asdict(outcome), "share": outcome.share, "met": outcome.met, "starts": starts, "memory": memory}


def _line(contestant: NetworkContestant, outcome: Outcome) -> str:
    """A contestant's time, starts and memory."""
    first, again = contestant.starts
    seconds, own = outcome.seconds[contestant.name], outcome.seconds.get(OWN_NAME)
    times = "" if own is None else f"{seconds / own:>6.2f}"
    text = f"  {contestant.name:<18}{1e3 * seconds:>9.4g} ms{times}  starts {first:.2f} s, again {again:.2f} s"
    return f"{text}, {contestant.memory_bytes / 1e6:.0f} MB, error {outcome.errors[contestant.name]:.1e}"


def _given(text: str) -> tuple[str, str]:
    """What `--python PEER=PATH` says."""
    key, equals, path = text.partition("=")
    if key not in BY_KEY or not equals or not path:
        raise click.UsageError(f"--python wants PEER=PATH with one of {', '.join(BY_KEY)}, got {text}")
    return key, path
