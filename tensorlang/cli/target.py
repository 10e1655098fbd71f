"""`tensorlang target`: what was detected of a target, and what this machine reaches."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from tensorlang.words import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensorlang.target import Rates, TargetSpec


@click.command()
@click.argument("name", default="llvm")
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True, help="Threads of the measurement.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def target(name: str, threads: int, as_json: bool) -> None:
    """Show what was detected of target NAME: cores, vectors, caches, measured peak and bandwidth; limits of a GPU."""
    from tensorlang import config
    from tensorlang.autotune.devices import named_device
    from tensorlang.autotune.measuring.jobs import undisturbed_rates
    from tensorlang.target import parse
    from tensorlang.target.detect import runs_here

    found = named_device(parse(name))
    rates = undisturbed_rates(threads, config.get("cache")) if found.can.native and runs_here(found) else None
    if as_json:
        measured = {"measured": {}} if rates is None else _measured_json(rates)
        click.echo(json.dumps({"target": found.to_json(), "threads": threads, **measured}, indent=2))
        return
    lines = [("target", str(found)), *(_gpu_lines(found) if found.can.device else _cpu_lines(found))]
    for label, value in [*lines, *(() if rates is None else _measured_lines(rates))]:
        click.echo(f"{label:<17} {value}")


def _measured_json(rates: Rates) -> dict[str, Any]:
    return {"measured": rates.summary(), "per_cycle": rates.a_cycle(), "doubts": list(rates.doubts)}


def _measured_lines(rates: Rates) -> Iterator[tuple[str, str]]:
    """The peak, what a core begins in a cycle, and bandwidths; then what is doubtful."""
    from tensorlang.target.rates import CLOCK

    yield "threads measured", str(rates.threads)
    yield "float32 peak", f"{rates.gflops:.0f} GFLOP/s"
    counts = rates.a_cycle()
    if counts:
        yield "clock", f"{rates.values[CLOCK]:.2f} GHz"
    for kind, label in (("fma", "multiply-adds"), ("dot", "dot products"), ("load", "loads")):
        texts = [f"{count:.1f} of {name.split()[1]}" for name, count in counts.items() if name.startswith(kind)]
        if texts:
            yield f"{label}", f"{', '.join(texts)} a cycle"
    for name, rate in rates.values.items():
        if " " not in name and name != CLOCK:
            yield f"{name} bandwidth", f"{rate:.0f} GB/s"
    for doubt in rates.doubts:
        yield "doubtful", doubt
    if rates.doubts:
        yield "", "Measured again and again; is the machine busy? The best is kept, and a later run goes on from it."


def _cpu_lines(found: TargetSpec) -> list[tuple[str, str]]:
    return [
        ("cores", str(found.cores)),
        ("vectors", f"{8 * found.vector_bytes} bits, {found.vector_registers} registers"),
        ("caches", ", ".join(f"L{n} {format_bytes(size)}" for n, size in enumerate(found.caches, 1))),
    ]


def _gpu_lines(found: TargetSpec) -> list[tuple[str, str]]:
    """Limits of a block, and what the device is, or why there is none."""
    from tensorlang.autotune.devices import timed_device
    from tensorlang.errors import MissingDependency, TargetError

    try:
        timed = timed_device(found)
        device = f"{timed.place}, driver {timed.driver}{', on the CPU' if timed.on_cpu else ''}"
    except (TargetError, MissingDependency) as error:
        device = f"none: {error.__context__ or error}"
    return [
        ("device", device),
        ("threads a block", str(found.max_num_threads)),
        ("threads a warp", str(found.thread_warp_size)),
        ("shared memory", f"{format_bytes(found.max_shared_memory_per_block)} a block"),
    ]
