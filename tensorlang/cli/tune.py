"""`tensorlang tune`: search for the best schedule of an operator, live."""

from __future__ import annotations

import shlex

import click

from tensorlang.cli.arguments import UNLIMITED, make_task, task_options
from tensorlang.errors import TensorlangError

DEFAULT_LOG = "tensorlang-tuning.jsonl"
DEFAULT_TRIALS = 64


@click.command()
@task_options
@click.option("--trials", type=click.IntRange(1), help=f"Measurements, resumed ones included ({DEFAULT_TRIALS}).")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="Wall time to spend.")
@click.option("--log", "log_file", default=DEFAULT_LOG, show_default=True, help="Records are appended here.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def tune(
    operator: str,
    shape: str | None,
    arguments: str | None,
    dtype: str | None,
    target: str,
    threads: int | None,
    trials: int | None,
    seconds: float | None,
    log_file: str,
    seed: int,
    as_json: bool,
) -> None:
    """Tune OPERATOR: a library operator (matmul), or your own as path/to/file.py:function.

    Your function returns its tensors, inputs first. Run the same command again to go on where it stopped.
    """
    from tensorlang import autotune
    from tensorlang.cli.display import open_display
    from tensorlang.cli.report import print_result, result_json

    task = make_task(operator, shape, arguments, dtype, target, threads)
    limit = trials or (DEFAULT_TRIALS if seconds is None else UNLIMITED)
    try:
        with open_display(task, limit, seconds, silent=as_json) as show:
            result = autotune.tune(task, limit, seconds, log_file, seed, callbacks=[show], compare=True)
    except autotune.Interrupted as stop:
        measured = len(stop.result.records) - stop.result.resumed
        if as_json:
            click.echo(result_json(stop.result, log_file))
        else:
            print_result(stop.result, log_file)
        click.echo(f"stopped after {measured} new trials, all kept in {log_file}; go on with: {_command()}", err=True)
        raise click.exceptions.Exit(130) from None
    if result.best is None:
        raise TensorlangError(_nothing_found(result))
    click.echo(result_json(result, log_file)) if as_json else print_result(result, log_file)


def _command() -> str:
    """The command line that was given, to be run again."""
    context = click.get_current_context()
    words = [context.params["operator"]]
    for option in context.command.params:
        value = context.params[option.name or ""]
        source = context.get_parameter_source(option.name or "")
        given = source is not None and source.name == "COMMANDLINE"
        if isinstance(option, click.Option) and given:
            words += [option.opts[-1]] if option.is_flag else [option.opts[-1], str(value)]
    return f"tensorlang tune {shlex.join(words)}"


def _nothing_found(result: object) -> str:
    from tensorlang.autotune import Result

    assert isinstance(result, Result)
    if not result.records:
        return "nothing was measured in the time given; give more --seconds"
    failures = ", ".join(f"{count} {status}" for status, count in result.failures.most_common())
    return f"no candidate of {len(result.records)} worked ({failures}); last error: {result.records[-1].error}"
