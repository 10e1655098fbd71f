"""`tensorlang tune MODEL.onnx`, and `tensorlang compile --tune`: the kernels of a network under one budget."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from tensorlang.cli.models import compiled_model
from tensorlang.files import is_file
from tensorlang.words import format_count, format_seconds, printable

if TYPE_CHECKING:
    from tensorlang.networks import Model
    from tensorlang.networks.tuning import TunedNetwork

STORE = "default"


def tune_network(
    model: str,
    shape: str | None,
    target: str,
    threads: int | None,
    trials: int | None,
    seconds: float | None,
    log: str,
    seed: int,
    as_json: bool,
) -> None:
    """Compile a model, with the records that there are, tune it, and print what came of it."""
    if trials is None and seconds is None:
        raise click.UsageError("a model takes a budget: --seconds, or --trials")
    machine = target if threads is None or "-num-cores" in target else f"{target} -num-cores={threads}"
    shapes = tuple(shape.split(";")) if shape else ()
    known = log if log != STORE and is_file(log) else None
    made = compiled_model(model, machine, known, as_json, shapes=shapes)
    tune_compiled(made, seconds, trials, log, seed, as_json)


def tune_compiled(
    model: Model, seconds: float | None, trials: int | None, log: str, seed: int = 0, as_json: bool = False
) -> None:
    """Tune a compiled model with a live display; exit code 130 where it was stopped, with all that was found kept."""
    from tensorlang.cli.network_display import open_network_display
    from tensorlang.networks.tuning import Interrupted

    try:
        with open_network_display(trials, seconds, as_json) as show:
            result = model.tune(seconds=seconds, trials=trials, log=log, seed=seed, progress=show)
    except Interrupted as stop:
        _tell(stop.result, log, as_json)
        click.echo("stopped; the same command goes on, for all trials are kept", err=True)
        raise click.exceptions.Exit(130) from None
    _tell(result, log, as_json)


def _tell(result: TunedNetwork, log: str, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({**result.to_json(), "log": log}, indent=2))
        return
    click.echo(f"{'before':>10}{'tuned':>10}{'trials':>8}  kernel")
    for k in result.kernels:
        calls = "" if k.calls == 1 else f", {k.calls} calls"
        what = f"{k.stage}: {k.op} {printable(k.node)}{calls}{'' if k.taken else ', left as it was'}"
        click.echo(f"{format_seconds(k.before):>10}{format_seconds(k.after):>10}{k.trials:>8}  {what}")
    for stage, why in result.left.items():
        click.echo(f"not tuned: {stage}: {printable(' '.join(why.split()), 300)}")
    where = "the default store" if log == STORE else log
    click.echo(
        f"{format_count(result.trials, 'trial')} in {result.elapsed:.0f} s, kept in {where}; all kernels of a run take "
        f"{format_seconds(result.after)}, before {format_seconds(result.before)}"
    )
