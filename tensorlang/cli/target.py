"""`tensorlang target`: what was detected of a target, and what this machine reaches."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tensorlang.target import TargetSpec


@click.command()
@click.argument("name", default="llvm")
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True, help="Threads of the measurement.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def target(name: str, threads: int, as_json: bool) -> None:
    """Show what was detected of target NAME: cores, vectors, caches, measured peak and bandwidth; limits of a GPU."""
    from tensorlang.autotune.devices import named_device
    from tensorlang.target import measure_peak, parse
    from tensorlang.target.detect import runs_here

    found = named_device(parse(name))
    native = found.can.native and runs_here(found)
    peak = measure_peak(threads) if native else {}
    if as_json:
        click.echo(json.dumps({"target": found.to_json(), "threads": threads, "measured": peak}, indent=2))
        return
    lines = [("target", str(found)), *(_gpu_lines(found) if found.can.device else _cpu_lines(found))]
    if native:
        lines += [
            ("threads measured", str(threads)),
            ("float32 peak", f"{peak['gflops']:.0f} GFLOP/s"),
            ("L2 bandwidth", f"{peak['l2_gbs']:.0f} GB/s"),
            ("memory bandwidth", f"{peak['memory_gbs']:.0f} GB/s"),
        ]
    for label, value in lines:
        click.echo(f"{label:<17} {value}")


def _cpu_lines(found: TargetSpec) -> list[tuple[str, str]]:
    return [
        ("cores", str(found.cores)),
        ("vectors", f"{8 * found.vector_bytes} bits, {found.vector_registers} registers"),
        ("caches", ", ".join(f"L{n} {_size(size)}" for n, size in enumerate(found.caches, 1))),
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
        ("shared memory", f"{_size(found.max_shared_memory_per_block)} a block"),
    ]


def _size(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"
