"""`tensorlang bench`: run the best schedule of a log beside NumPy."""

from __future__ import annotations

import json
import warnings

import click

from tensorlang.cli.arguments import DEFAULT_LOG, make_task, task_options
from tensorlang.cli.models import bench_model
from tensorlang.cli.quantize import quantization, quantize_options


@click.command()
@task_options
@click.option(
    "--log", "log_file", default=DEFAULT_LOG, show_default=True, help="Tuning log to take the best schedule from."
)
@click.option("--peers", is_flag=True, help="Of a model: time the other runtimes that are installed, by turns.")
@quantize_options
@click.option("--other-targets", is_flag=True, help="Take records for other targets of the kind, too.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def bench(
    operator: str,
    shape: str | None,
    arguments: str | None,
    dtype: str | None,
    options: tuple[str, ...],
    target: str,
    threads: int | None,
    log_file: str,
    peers: bool,
    quantize: str | None,
    method: str,
    keep: tuple[str, ...],
    other_targets: bool,
    as_json: bool,
) -> None:
    """Apply the best schedule of a log to OPERATOR, re-verified, and time it beside NumPy.

    OPERATOR may be a MODEL.onnx: it is compiled with the best records of the log, if that is there, and run on random
    inputs. Shapes that it leaves open are --shape 'x=1,3,224,224;mask=1,128'. --peers times onnxruntime and openvino
    beside it, where they are installed; --quantize compiles the model in fewer bits, and they run it as it is.
    """
    if operator.endswith(".onnx"):
        if arguments is not None or dtype is not None or options or other_targets:
            raise click.UsageError("a model takes --shape, --target, --threads, --log, --peers, --quantize, --json")
        how = quantization(quantize, method, keep)
        bench_model(operator, shape, target, threads, log_file, peers, as_json, how)
        return
    if peers or quantize is not None or keep:
        raise click.UsageError("--peers and --quantize are for a MODEL.onnx; operators are timed beside NumPy")
    from rich.console import Console

    from tensorlang.autotune import RecordSkipped, bench_best
    from tensorlang.cli.outcome import record_json, schedule_python, speed_table
    from tensorlang.words import printable

    task = make_task(operator, shape, arguments, dtype, options, target, threads)
    with warnings.catch_warnings(record=True) as skipped:
        warnings.simplefilter("always", RecordSkipped)
        found = bench_best(log_file, task, other_targets)
    for each in skipped:
        click.echo(printable(f"warning: {each.message}"), err=True)
    if as_json:
        click.echo(json.dumps(record_json(found.record, found.peak_gflops, found.comparison), indent=2))
        return
    console = Console(highlight=False, soft_wrap=True)
    console.print(schedule_python(found.record), markup=False)
    console.print(speed_table(found.record, found.peak_gflops, found.comparison))
