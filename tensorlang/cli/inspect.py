"""`tensorlang inspect`: what a model is made of, and what of it is not taken."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tensorlang.networks.report import Report


known_option = click.option(
    "--known", multiple=True, metavar="NAME=16000", help="What an input is in all calls: a number, or several (1,2)."
)


@click.command("inspect")
@click.argument("model", metavar="MODEL.onnx")
@click.option(
    "--shape", "shapes", multiple=True, metavar="NAME=1,3,224,224", help="The shape of an input that leaves it open."
)
@known_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def inspect(ctx: click.Context, model: str, shapes: tuple[str, ...], known: tuple[str, ...], as_json: bool) -> None:
    """Show operators, operations and weights of MODEL.onnx; exit code 1 where nodes of it are not taken.

    Nothing is compiled. Each node that is not taken is named, with the reason.
    """
    from tensorlang.networks.report import inspect as inspected

    report = inspected(model, read_shapes(shapes), read_known(known))
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=2))
    else:
        _show(report)
    if not report.is_supported:
        ctx.exit(1)


def read_shapes(words: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """Shapes by name, as they are written: `x=1,3,224,224`."""
    found: dict[str, tuple[int, ...]] = {}
    for word in words:
        name, _, text = word.rpartition("=")
        try:
            found[name] = tuple(int(n) for n in text.split(",") if n)
        except ValueError:
            name = ""
        if not name:
            raise click.BadParameter(f"a shape is written NAME=1,3,224,224, got {word!r}")
    return found


def read_known(words: tuple[str, ...]) -> dict[str, float | list[float]]:
    """Numbers by name, as they are written: `rate=16000`, or several of them, `axes=1,2`."""
    found: dict[str, float | list[float]] = {}
    for word in words:
        name, _, text = word.rpartition("=")
        try:
            numbers = [json.loads(n.lower()) for n in text.split(",") if n]
        except ValueError:
            numbers = []
        if not name or not all(isinstance(n, int | float) for n in numbers) or not numbers:
            raise click.BadParameter(f"what is known of an input is written NAME=16000, got {word!r}")
        found[name] = numbers if "," in text else numbers[0]
    return found


def _show(report: Report) -> None:
    click.echo(f"{report.name}, opset {report.opset}")
    for word, arrays in (("input", report.inputs), ("output", report.outputs)):
        for name, text in arrays.items():
            click.echo(f"{word:<8} {name}  {text}")
    total = sum(row.operations for row in report.rows)
    click.echo(f"weights  {report.weights / 1e6:.1f} MB")
    if report.kernels is not None:
        click.echo(f"kernels  {report.kernels}, {total / 1e9:.2f} Gop")
    click.echo(f"\n{'operator':<24}{'nodes':>6}{'Mop':>10}{'share':>8}")
    for row in report.rows:
        share = f"{100 * row.operations / total:.1f} %" if total and row.operations else ""
        work = f"{row.operations / 1e6:.1f}" if row.operations else ""
        click.echo(f"{row.op:<24}{row.nodes:>6}{work:>10}{share:>8}".rstrip())
    if report.refusals:
        click.echo(f"\nnot taken: {len(report.refusals)} nodes")
        for refusal in report.refusals:
            click.echo(f"  {refusal}")
        if report.skipped:
            click.echo(f"not looked at, as they need these: {len(report.skipped)} nodes")
        click.echo(
            "`tensorlang run --fallback onnxruntime` runs them there, as from_onnx(..., fallback='onnxruntime') does"
        )
