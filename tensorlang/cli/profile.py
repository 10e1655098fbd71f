"""`tensorlang profile`: where the time of a kernel goes."""

from __future__ import annotations

import json
from contextlib import nullcontext

import click

from tensorlang.cli.arguments import check_task_options, is_own, make_task, parse_arguments, task_options
from tensorlang.cli.show import build_of, returned


@click.command()
@task_options
@click.option("--log", "log_file", type=click.Path(dir_okay=False), help="Take the best schedule of this log.")
@click.option("--repeat", type=click.IntRange(1), default=7, show_default=True, help="Runs; the best one counts.")
@click.option("--trace", type=click.Path(dir_okay=False), help="Write a run as a file for Perfetto.")
@click.option("--json", "as_json", is_flag=True, help="Print the profile as JSON.")
def profile(
    operator: str,
    shape: str | None,
    arguments: str | None,
    dtype: str | None,
    options: tuple[str, ...],
    target: str,
    threads: int | None,
    log_file: str | None,
    repeat: int,
    trace: str | None,
    as_json: bool,
) -> None:
    """Tell where the time of OPERATOR goes: each loop nest beside what this machine can do, and what would help.

    The schedule is the library's, that which your function returns before its tensors, or the best of a log; the
    inputs are random.
    """
    import tensorlang
    from tensorlang import autotune
    from tensorlang.autotune.measuring.seeded import arguments_drawn
    from tensorlang.autotune.task import task_of

    if log_file is None and is_own(operator):
        check_task_options(operator, shape, arguments, dtype, options, target, threads)
        schedule, tensors = returned(operator, arguments)
        task = task_of(tensors, operator, parse_arguments(arguments), target, threads)
        kernel = build_of(schedule, tensors, task.target)
    else:
        task = make_task(operator, shape, arguments, dtype, options, target, threads)
        with autotune.apply_history_best(log_file) if log_file is not None else nullcontext():
            chosen = "default" if log_file is None else "best"
            kernel = tensorlang.build(list(task.tensors), schedule=chosen, target=task.target)
    found = kernel.profile(*arguments_drawn(task, 0), repeat=repeat)
    if trace is not None:
        found.save_trace(trace)
    click.echo(json.dumps(found.to_json(), indent=2) if as_json else str(found), nl=as_json)
