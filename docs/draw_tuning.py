"""Draw a tuning log: the speed of every trial, and the best so far, as an SVG picture.

python docs/draw_tuning.py matmul.jsonl docs/images/tuning.svg
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from tensorlang.autotune import read_log
from tensorlang.autotune.report.drawings import draw_trials, standalone
from tensorlang.autotune.report.figures import searches_of
from tensorlang.target import measure_peak
from tensorlang.words import format_threads

DOTS = 5000


@click.command()
@click.argument("log", type=click.Path(exists=True, dir_okay=False))
@click.argument("picture", type=click.Path(path_type=Path))
@click.option("--peak", type=float, help="Peak of the machine in GFLOP/s (default: the log's, or measured now).")
def main(log: str, picture: Path, peak: float | None) -> None:
    """Draw LOG, which holds records of one workload, as PICTURE (SVG)."""
    found = searches_of(read_log(log).records)
    if len(found) != 1 or not found[0].timed:
        raise click.UsageError(f"{log} must hold timed records of one workload, target and number of threads")
    (search,) = found
    limit = peak or search.peak_gflops or measure_peak(search.threads)["gflops"]
    title = f"{search.name}, {format_threads(search.threads)}"
    drawn = standalone(draw_trials(replace(search, peak_gflops=limit), DOTS, title))
    picture.write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main()
