"""`python -m benchmarks [NAME ...]`: run benchmarks, print their figures, fail when a goal is missed.

`python -m benchmarks cpu` runs kernels beside the libraries that are installed, `operators` rarer ones, `report` and
`operators-report` write their pages; `networks` runs whole networks beside other runtimes, `zoo` those of others, to
see that they are equal; `lowbit` products of weights of a few bits beside a read of their bytes, `decoder` a small
language model beside llama.cpp; `textbook` profiles kernels of which textbooks know what binds them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import click

from benchmarks import (
    cpu,
    decoder,
    exports,
    frameworks,
    lowbit,
    matmul,
    network_report,
    networks,
    operator_report,
    overheads,
    records,
    replay,
    report,
    stencils,
    textbook,
    training,
    tuning,
    tuning_report,
    users,
    verdicts,
)
from benchmarks.figure import Figure
from benchmarks.gpu import command as gpu
from benchmarks.machine import describe
from benchmarks.zoo.command import command as zoo

BENCHMARKS: dict[str, Callable[[float], list[Figure]]] = {
    "overheads": lambda seconds: overheads.measure(),
    "verdicts": lambda seconds: verdicts.measure(),
    "matmul": lambda seconds: matmul.measure(seconds=seconds, goal=matmul.SHARE_OF_PEAK),
    "matmul-parallel": lambda seconds: matmul.measure(seconds=seconds, threads=2),
    "matmul-odd": lambda seconds: matmul.measure((1000, 700, 300), seconds=seconds),
    "stencils": lambda seconds: stencils.measure(),
    "export": lambda seconds: exports.measure(),
    "frameworks": lambda seconds: frameworks.measure(),
    "records": lambda seconds: records.measure(),
}


class Commands(click.Group):
    """A group whose first command is meant when none is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the name of the first command before what is not a name."""
        if not args or args[0] not in (*self.commands, "--help"):
            args = [next(iter(self.commands)), *args]
        return super().parse_args(ctx, args)


@click.command("figures")
@click.argument("names", nargs=-1, type=click.Choice(list(BENCHMARKS)))
@click.option("--seconds", default=matmul.TUNING_SECONDS, show_default=True, help="Tuning time of each operator.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--save", type=click.Path(path_type=Path), help="Write the figures, the machine and versions to a file.")
def figures(names: Sequence[str], seconds: float, as_json: bool, save: Path | None) -> None:
    """Run the benchmarks NAMES (all without any); the word `figures` may be left out."""
    found: list[Figure] = []
    for name in names or BENCHMARKS:
        made = BENCHMARKS[name](seconds)
        found += made
        if not as_json:
            click.echo("\n".join(map(str, made)))
    result = {**describe(), "figures": [asdict(f) | {"met": f.met} for f in found]}
    text = json.dumps(result, indent=2, ensure_ascii=False) + "\n"
    if as_json:
        click.echo(text, nl=False)
    if save is not None:
        save.parent.mkdir(parents=True, exist_ok=True)
        save.write_text(text, encoding="utf-8")
    sys.exit(0 if all(f.met for f in found) else 1)


COMMANDS = (
    figures,
    cpu.command,
    cpu.operators,
    operator_report.command,
    networks.command,
    network_report.command,
    lowbit.command,
    decoder.command,
    textbook.command,
    report.command,
    tuning.command,
    tuning_report.command,
    training.command,
    replay.replay,
    users.command,
    gpu.command,
    zoo,
)
main = Commands(commands=COMMANDS, help="Benchmarks of tensorlang.")

if __name__ == "__main__":
    main()
