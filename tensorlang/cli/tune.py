"""`tensorlang tune`: search for the best schedule of an operator, live."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import click

from tensorlang.cli.arguments import DEFAULT_LOG, UNLIMITED, make_task, parse_arguments, task_options
from tensorlang.cli.network_tuning import STORE, tune_network
from tensorlang.cli.worker import tls_options
from tensorlang.errors import TensorlangError
from tensorlang.words import format_failures

if TYPE_CHECKING:
    from tensorlang.autotune import Limits, Result, Task, TemplateTask
    from tensorlang.autotune.machines import Machines


class _Where(TypedDict):
    """Where and how candidates are measured."""

    limits: Limits
    runner: Machines


DEFAULT_TRIALS = 64


@click.command()
@task_options
@click.option("--trials", type=click.IntRange(1), help=f"Measurements, resumed ones included ({DEFAULT_TRIALS}).")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="Wall time to spend.")
@click.option("--log", "log_file", default=DEFAULT_LOG, show_default=True, help="Records are appended here.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--report", "page", type=click.Path(dir_okay=False), help="Write a page about the search (HTML).")
@click.option(
    "--runner", default="local", show_default=True, help="dask://host:port: measure on that cluster's workers."
)
@tls_options
@click.option("--flush", is_flag=True, help="Empty the caches before every sample: for data that is cold in use.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def tune(
    operator: str,
    shape: str | None,
    arguments: str | None,
    dtype: str | None,
    options: tuple[str, ...],
    target: str,
    threads: int | None,
    trials: int | None,
    seconds: float | None,
    log_file: str,
    seed: int,
    page: str | None,
    runner: str,
    tls_ca_file: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    flush: bool,
    as_json: bool,
) -> None:
    """Tune OPERATOR: a library operator (matmul), or your own as path/to/file.py:function.

    Your function returns its tensors, inputs first; a template of yours (autotune.template) is tuned over its knobs.
    Run the same command again to go on where it stopped.

    OPERATOR may be a MODEL.onnx: its kernels are tuned, those first that take most of the time of a run. Records go to
    the default store, where `tensorlang compile`, `run` and `bench` find them, unless --log names a file. Shapes that
    it leaves open are --shape 'x=1,3,224,224;mask=1,128'.
    """
    if operator.endswith(".onnx"):
        _refuse_for_models(
            "arguments", "dtype", "options", "page", "runner", "flush", "tls_ca_file", "tls_cert", "tls_key"
        )
        log = log_file if _is_given("log_file") else STORE
        tune_network(operator, shape, target, threads, trials, seconds, log, seed, as_json)
        return
    from tensorlang import autotune

    tls = (tls_ca_file, tls_cert, tls_key)
    machines = click.get_current_context().with_resource(autotune.machines_of(runner, tls))
    chosen = machines.target_of(target)
    task = make_task(operator, shape, arguments, dtype, options, chosen, threads)
    template = autotune.template_task(operator, parse_arguments(arguments), chosen, threads)
    how: _Where = {"limits": autotune.Limits(flush=flush), "runner": machines}
    _check_page(page)
    limit = trials or (DEFAULT_TRIALS if seconds is None else UNLIMITED)
    try:
        result = _tuned(template or task, limit, seconds, log_file, seed, how, silent=as_json)
    except autotune.Interrupted as stop:
        measured = len(stop.result.records) - stop.result.resumed
        _tell(stop.result, task, log_file, page, as_json)
        click.echo(f"stopped after {measured} new trials, all kept in {log_file}; go on with: {_command()}", err=True)
        raise click.exceptions.Exit(130) from None
    _tell(result, task, log_file, page, as_json)
    if result.best is None:
        raise TensorlangError(_nothing_found(result))
    if result.ended:
        raise TensorlangError(
            f"tuning ended early, with all {len(result.records)} trials in {log_file}: {result.ended}"
        )


def _tuned(
    task: Task | TemplateTask, trials: int, seconds: float | None, log: str, seed: int, how: _Where, silent: bool
) -> Result:
    """Tune a task, by its template where it has one, with a display."""
    from tensorlang import autotune
    from tensorlang.cli.display import open_display

    if isinstance(task, autotune.TemplateTask):
        with open_display(task.task, trials, seconds, silent) as show:
            return autotune.tune_template(task, trials, seconds, log, seed, callbacks=[show], compare=True, **how)
    with open_display(task, trials, seconds, silent) as show:
        return autotune.tune(task, trials, seconds, log, seed, callbacks=[show], compare=True, **how)


def _refuse_for_models(*names: str) -> None:
    """UsageError for options that are about one kernel."""
    given = [n for n in names if _is_given(n)]
    if given:
        spelt = {p.name: p.opts[-1] for p in click.get_current_context().command.params}
        wanted = "--shape, --target, --threads, --trials, --seconds, --log, --seed and --json"
        raise click.UsageError(f"a model takes {wanted}, got {', '.join(spelt[n] for n in given)}")


def _is_given(name: str) -> bool:
    """Whether an option is on the command line."""
    source = click.get_current_context().get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _check_page(page: str | None) -> None:
    """Raise TensorlangError, before hours of tuning, where the page cannot be written."""
    if page is not None and not os.access(Path(page).absolute().parent, os.W_OK):
        raise TensorlangError(f"cannot write {page}: no such folder, or not writable")


def _tell(result: Result, task: Task, log_file: str, page: str | None, as_json: bool) -> None:
    """Print what tuning found, and write the page about it, if one was asked for and anything was measured."""
    from tensorlang.autotune.report.writing import make_report
    from tensorlang.cli.outcome import print_result, result_json

    if as_json:
        click.echo(result_json(result, log_file))
    else:
        print_result(result, log_file)
    if page is not None and result.records:
        make_report(Path(log_file).name, result.records, [task]).write(page)
        click.echo(f"wrote {page}", err=True)


def _command() -> str:
    """The command line that was given, to be run again."""
    context = click.get_current_context()
    words = [context.params["operator"]]
    for option in context.command.params:
        value = context.params[option.name or ""]
        if isinstance(option, click.Option) and _is_given(option.name or ""):
            if option.is_flag:
                words.append(option.opts[-1])
            else:
                for each in value if option.multiple else (value,):
                    words += [option.opts[-1], str(each)]
    return f"tensorlang tune {shlex.join(words)}"


def _nothing_found(result: Result) -> str:
    if not result.records and result.ended:
        return f"nothing was measured: {result.ended}"
    if not result.records:
        return "nothing was measured in the time given; give more --seconds"
    failures = format_failures(result.failures)
    return f"no candidate of {len(result.records)} worked ({failures}); last error: {result.records[-1].error}"
