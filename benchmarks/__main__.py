"""`python -m benchmarks [NAME ...]`: run benchmarks, print their figures, fail when a goal is missed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict

import click

from benchmarks import matmul, overheads
from benchmarks.figure import Figure

BENCHMARKS: dict[str, Callable[[float], list[Figure]]] = {
    "overheads": lambda seconds: overheads.measure(),
    "matmul": lambda seconds: matmul.measure(seconds=seconds),
    "matmul-parallel": lambda seconds: matmul.measure(seconds=seconds, threads=2),
    "matmul-odd": lambda seconds: matmul.measure(size=1000, seconds=seconds),
}


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(BENCHMARKS)))
@click.option("--seconds", default=matmul.TUNING_SECONDS, show_default=True, help="Tuning time of each operator.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(names: Sequence[str], seconds: float, as_json: bool) -> None:
    """Run the benchmarks NAMES (all without any)."""
    figures: list[Figure] = []
    for name in names or BENCHMARKS:
        found = BENCHMARKS[name](seconds)
        figures += found
        if not as_json:
            click.echo("\n".join(map(str, found)))
    if as_json:
        click.echo(json.dumps([asdict(f) | {"met": f.met} for f in figures], indent=2))
    sys.exit(0 if all(f.met for f in figures) else 1)


if __name__ == "__main__":
    main()
