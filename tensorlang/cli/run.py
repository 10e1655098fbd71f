"""`tensorlang run`: compile a model, run it on arrays, and hold it against onnxruntime or time its kernels."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from tensorlang.cli.inspect import known_option, read_known
from tensorlang.cli.models import compiled_model, inputs_of, numerics_option
from tensorlang.cli.quantize import quantization, quantize_options
from tensorlang.files import writing

if TYPE_CHECKING:
    from tensorlang.networks import Model


@click.command("run")
@click.argument("model", metavar="MODEL.onnx")
@click.option("--input", "files", multiple=True, metavar="[NAME=]FILE.npy", help="An input; random without.")
@click.option("--shape", "shapes", multiple=True, metavar="NAME=1,3,224,224", help="The shape of an open input.")
@known_option
@click.option("--output", "folder", type=click.Path(file_okay=False), help="Write the outputs there, as .npy.")
@click.option("--check", is_flag=True, help="Compare with onnxruntime; exit code 1 where outputs differ.")
@click.option("--profile", is_flag=True, help="Time every kernel, and what it takes at least on this machine.")
@click.option("--trace", type=click.Path(dir_okay=False), help="Write these times to a file for ui.perfetto.dev.")
@click.option("--fallback", type=click.Choice(["onnxruntime"]), help="Run nodes there that are not taken.")
@numerics_option
@quantize_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def run(
    ctx: click.Context,
    model: str,
    files: tuple[str, ...],
    shapes: tuple[str, ...],
    known: tuple[str, ...],
    folder: str | None,
    check: bool,
    profile: bool,
    trace: str | None,
    fallback: str | None,
    numerics: str,
    quantize: str | None,
    method: str,
    keep: tuple[str, ...],
    as_json: bool,
) -> None:
    """Compile MODEL.onnx for this machine and run it."""
    from tensorlang.networks.onnx.comparing import errors_of
    from tensorlang.networks.profiling import profiled

    start = time.perf_counter()
    how = quantization(quantize, method, keep)
    compiled = compiled_model(
        model, quiet=as_json, numerics=numerics, shapes=shapes, fallback=fallback, known=known, quantize=how
    )
    facts: dict[str, Any] = {"model": str(compiled), "compiled_seconds": time.perf_counter() - start}
    facts["fallback"] = [str(refusal) for refusal in compiled.fallback]
    inputs = inputs_of(compiled, files)
    outputs = dict(zip(compiled.output_names, compiled.run(inputs), strict=True))
    facts["outputs"] = {name: f"{array.dtype}{list(array.shape)}" for name, array in outputs.items()}
    facts["seconds"] = _fastest(compiled, inputs)
    if profile or trace is not None:
        times = profiled(compiled, inputs, _REPEAT, True, trace)
        facts["kernels"] = [row.to_json() for row in times]
    if folder is not None:
        _write(folder, outputs)
    if check:
        facts["errors"] = errors_of(model, compiled, inputs, outputs, read_known(known))
    _show(facts, as_json)
    if check and max(facts["errors"].values(), default=0.0) > _ALLOWED:
        ctx.exit(1)


_ALLOWED = 1e-3
"""The largest error over the largest value of an output."""
_LONG = 250
"""Bytes from which on the name of an output is no name of a file."""
_REPEAT = 5
"""Runs that are timed."""


def _fastest(compiled: Model, inputs: list[Any]) -> float:
    found = []
    for _ in range(_REPEAT):
        start = time.perf_counter()
        compiled(*inputs)
        found.append(time.perf_counter() - start)
    return min(found)


def _write(folder: str, outputs: dict[str, Any]) -> None:
    from pathlib import Path

    target = Path(folder)
    with writing(folder):
        target.mkdir(parents=True, exist_ok=True)
    for number, (name, array) in enumerate(outputs.items()):
        word = "".join(c if c.isalnum() or c in "-_." else "_" for c in name)
        file = target / f"{word if 0 < len(word.encode()) < _LONG else f'output{number}'}.npy"
        with writing(file):
            np.save(file, array)


def _show(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    click.echo(facts["model"])
    click.echo(f"compiled in {facts['compiled_seconds']:.1f} s; a call takes {facts['seconds'] * 1e3:.2f} ms")
    for refusal in facts["fallback"]:
        click.echo(f"by onnxruntime: {refusal}")
    for name, text in facts["outputs"].items():
        error = facts.get("errors", {}).get(name)
        click.echo(f"output {name}  {text}{'' if error is None else f'  error {error:.1e}'}")
    for row in facts.get("kernels", ()):
        how = "" if row["algorithm"] == "direct" else f", {row['algorithm']}"
        share = f"{row['share']:>5.2f} of {row['limit']['binds']:<8}" if "share" in row else ""
        speed = f"{row['seconds'] * 1e6:>9.0f} us {row['gflops']:>7.1f} Gop/s {share}"
        click.echo(f"{speed} {row['op']:<20} {row['node']}{how}")
