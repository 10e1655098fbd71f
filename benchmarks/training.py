"""`python -m benchmarks train`: the model that tensorlang ships, from records of many programs.

The workloads of `python -m benchmarks tuning` are not among them, so that what is proposed there before any measurement
shows how well it transfers. Records are kept, and searches go on where they stopped; more logs can be given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
import numpy as np

from tensorlang.autotune import Task, create_task, train_model, tune
from tensorlang.autotune.search.pretrained import PRETRAINED
from tensorlang.autotune.search.sketch import Sketch
from tensorlang.autotune.space import sketches_of

SEED = 1
TRIALS = 96
DRAWN = 0.5
"""Share of the trials that are drawn at random: a search alone shows few of the mistakes that it avoids."""

PROGRAMS: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("matmul", (512, 512, 512)),
    ("matmul", (768, 640, 1536)),
    ("matmul", (1000, 700, 300)),
    ("matmul", (2048, 1024, 512)),
    ("matmul", (128, 768, 3072)),
    ("conv2d", (1, 64, 56, 56, 64, 3)),
    ("conv2d", (1, 256, 14, 14, 256, 3)),
    ("conv2d", (1, 64, 56, 56, 128, 1)),
    ("conv2d", (1, 96, 30, 30, 80, 3)),
    ("depthwise_conv2d", (1, 512, 14, 14, 3)),
    ("depthwise_conv2d", (1, 128, 56, 56, 3)),
    ("depthwise_conv2d", (1, 96, 75, 75, 5)),
    ("softmax", (1024, 768)),
    ("softmax", (128, 4096)),
    ("log_softmax", (300, 1500)),
    ("layer_norm", (512, 768)),
    ("rms_norm", (256, 2048)),
    ("batch_matmul", (8, 256, 256, 64)),
    ("batch_matmul", (16, 96, 160, 128)),
    ("batch_matmul", (4, 384, 384, 384)),
    ("dense", (256, 1024, 512)),
    ("transpose", (1000, 1500)),
)
"""Operators of the library, near and far from those of the benchmark."""


def drawn(task: Task, count: int) -> list[Sketch]:
    """Candidates at random, about as many of every sketch; each is a space of its own, in which nothing is open."""
    rng, space = np.random.default_rng(SEED), sketches_of(task)
    each = -(-count // len(space))
    closed = [
        replace(sketch, name=f"{sketch.name}.drawn-{n}", knobs=_only(sketch, row.tolist()), start=None)
        for sketch in space
        for n, row in enumerate(sketch.sample(rng, each))
    ]
    return [closed[n] for n in rng.permutation(len(closed))[:count]]


def _only(sketch: Sketch, row: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Decisions with one candidate each."""
    return {name: (value,) for name, value in sketch.decisions(row).items()}


@click.command("train")
@click.option("--keep", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder of the logs.")
@click.option("--threads", default=(1,), multiple=True, show_default=True, type=click.IntRange(1))
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="At most so long for every program.")
@click.option("--trials", default=TRIALS, show_default=True, help="Trials of every program.")
@click.option("--out", default=PRETRAINED, show_default=True, type=click.Path(dir_okay=False, path_type=Path))
@click.argument("logs", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def command(
    keep: Path, threads: Sequence[int], seconds: float | None, trials: int, out: Path, logs: Sequence[Path]
) -> None:
    """Tune many programs, and train a model on their records and those of LOGS."""
    keep.mkdir(parents=True, exist_ok=True)
    found = list(logs)
    for count in threads:
        for name, sizes in PROGRAMS if trials else ():
            log = keep / f"{name}-{'x'.join(map(str, sizes))}-{count}.jsonl"
            task = create_task(name, sizes, threads=count)
            at_random = drawn(task, int(DRAWN * trials))
            tune(task, len(at_random), seconds, log, SEED, sketches=at_random)
            result = tune(task, trials, seconds, log, SEED)
            best = "nothing" if result.best is None else f"{1e6 * result.best.median:.4g} µs"
            click.echo(f"{log.stem}: {len(result.records)} trials in {result.seconds:.0f} s, best {best}")
            found.append(log)
    workloads = train_model(found, out)
    click.echo(f"{out}: trained on {workloads} workloads, {out.stat().st_size / 1024:.0f} KB")
