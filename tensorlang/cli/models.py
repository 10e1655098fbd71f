"""What commands that take a model of a network share."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import click

from tensorlang.cli.inspect import read_known, read_shapes
from tensorlang.errors import ArgumentError
from tensorlang.files import is_file

if TYPE_CHECKING:
    from tensorlang.networks import Model, Network
    from tensorlang.networks.quantization import Quantization

numerics_option = click.option(
    "--numerics",
    type=click.Choice(("default", "strict")),
    default="default",
    show_default=True,
    help="strict: sums over windows in place of Winograd's algorithm.",
)


def compiled_model(
    model: Network | str,
    target: str | None = None,
    log: str | None = None,
    quiet: bool = False,
    numerics: str = "default",
    shapes: tuple[str, ...] = (),
    fallback: str | None = None,
    known: tuple[str, ...] = (),
    quantize: Quantization | None = None,
) -> Model:
    """A network or a file compiled, or started, with a bar that tells how far it is; records of `log` come first."""
    from tensorlang import autotune
    from tensorlang.networks import compile_model

    with click.progressbar(length=1, label="compiling", hidden=quiet) as bar:

        def progress(done: int, count: int, stage: str) -> None:
            bar.length = count
            bar.update(done - bar.pos)

        given = read_shapes(shapes) or None
        with autotune.apply_history_best(log) if log is not None else nullcontext():
            return compile_model(
                model, target, progress, given, numerics, read_known(known) or None, fallback, quantize
            )


def inputs_of(network: Network | Model, files: tuple[str, ...]) -> list[Any]:
    """Arrays from files, by name or in order; random ones for what no file is given for."""
    from tensorlang.networks.drawing import drawn_inputs
    from tensorlang.networks.quantizing.samples import read_arrays

    given: dict[str, Any] = {}
    for number, word in enumerate(files):
        name, _, path = word.rpartition("=")
        name = name or (network.input_names[number] if number < len(network.input_names) else "")
        if name not in network.input_names:
            raise ArgumentError(f"{word}: the model's inputs are {', '.join(network.input_names)}")
        given[name] = read_arrays(path)
        if isinstance(given[name], dict):
            raise ArgumentError(f"{path} holds arrays by name, and an input is one array: give a .npy file")
    return list(drawn_inputs(network, given))


def bench_model(
    model: str,
    shape: str | None,
    target: str,
    threads: int | None,
    log: str,
    peers: bool,
    as_json: bool,
    quantize: Quantization | None = None,
) -> None:
    """Time a model, and others that run it, by turns on the same random inputs; only ours is quantized."""
    from tensorlang.networks.onnx.peers import PEERS, compared, installed
    from tensorlang.runtime.threads import available_cores

    cores = threads or available_cores()
    machine = target if "-num-cores" in target else f"{target} -num-cores={cores}"
    shapes = tuple(shape.split(";")) if shape else ()
    used = log if is_file(log) else None
    made = compiled_model(model, machine, used, as_json, shapes=shapes, quantize=quantize)
    inputs = inputs_of(made, ())
    named = dict(zip(made.input_names, inputs, strict=True))

    def own() -> list[Any]:
        found = made(*inputs)
        return list(found) if isinstance(found, tuple) else [found]

    found = compared(own, {name: PEERS[name](model, named, cores) for name in (installed() if peers else ())})
    if as_json:
        rows = {n: {"median_seconds": t.median, "seconds": t.seconds, "error": t.error} for n, t in found.items()}
        click.echo(json.dumps({"model": str(made), "threads": cores, "runtimes": rows}, indent=2))
        return
    click.echo(f"{made}\n{'runtime':<14}{'median':>12}{'range':>22}{'times ours':>12}{'difference':>12}")
    for name, row in found.items():
        spread = f"{min(row.seconds) * 1e3:.2f} to {max(row.seconds) * 1e3:.2f} ms"
        ratio, error = f"{row.median / found['tensorlang'].median:.2f}", f"{row.error:.1e}"
        click.echo(f"{name:<14}{row.median * 1e3:>9.2f} ms{spread:>22}{ratio:>12}{error:>12}")
