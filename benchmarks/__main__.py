"""`python -m benchmarks [NAME ...]`: run benchmarks, print their figures, fail when a goal is missed."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

import tensorlang
from benchmarks import matmul, overheads, stencils, verdicts
from benchmarks.figure import Figure
from tensorlang.target import Target

BENCHMARKS: dict[str, Callable[[float], list[Figure]]] = {
    "overheads": lambda seconds: overheads.measure(),
    "verdicts": lambda seconds: verdicts.measure(),
    "matmul": lambda seconds: matmul.measure(seconds=seconds, goal=matmul.SHARE_OF_PEAK),
    "matmul-parallel": lambda seconds: matmul.measure(seconds=seconds, threads=2),
    "matmul-odd": lambda seconds: matmul.measure((1000, 700, 300), seconds=seconds),
    "stencils": lambda seconds: stencils.measure(),
}
PACKAGES = ("numpy", "islpy", "llvmlite")


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(BENCHMARKS)))
@click.option("--seconds", default=matmul.TUNING_SECONDS, show_default=True, help="Tuning time of each operator.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--save", type=click.Path(path_type=Path), help="Write the figures, the machine and versions to a file.")
def main(names: Sequence[str], seconds: float, as_json: bool, save: Path | None) -> None:
    """Run the benchmarks NAMES (all without any)."""
    figures: list[Figure] = []
    for name in names or BENCHMARKS:
        found = BENCHMARKS[name](seconds)
        figures += found
        if not as_json:
            click.echo("\n".join(map(str, found)))
    report = {**machine(), "figures": [asdict(f) | {"met": f.met} for f in figures]}
    text = json.dumps(report, indent=2, ensure_ascii=False) + "\n"
    if as_json:
        click.echo(text, nl=False)
    if save is not None:
        save.parent.mkdir(parents=True, exist_ok=True)
        save.write_text(text, encoding="utf-8")
    sys.exit(0 if all(f.met for f in figures) else 1)


def machine() -> dict[str, Any]:
    """Where and with what the figures were measured."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "target": Target("llvm").to_json(),
        "python": platform.python_version(),
        "versions": {"tensorlang": tensorlang.__version__, **{name: version(name) for name in PACKAGES}},
    }


if __name__ == "__main__":
    main()
