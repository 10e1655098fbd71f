"""`tensorlang quantize`: what layers of a model lose in 8 bits; and the options by which other commands have it so."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tensorlang.cli.inspect import known_option, read_known, read_shapes
from tensorlang.errors import ArgumentError
from tensorlang.words import printable

if TYPE_CHECKING:
    from tensorlang.networks import Network
    from tensorlang.networks.quantization import Quantization
    from tensorlang.networks.quantizing.errors import LayerError

Command = TypeVar("Command", bound=Callable[..., Any])
_WORDS = ("weights", "bfloat16")
_method = click.option(
    "--method",
    type=click.Choice(("minmax", "percentile", "entropy")),
    default="minmax",
    show_default=True,
    help="How ranges are taken from samples.",
)
_keep = click.option("--keep", multiple=True, metavar="NODE", help="A node that stays in floats; also '/head/*'.")


def quantize_options(command: Command) -> Command:
    """Options of commands that compile a model: `quantize`, `method` and `keep`."""
    into = click.option(
        "--quantize",
        metavar="FOLDER|weights|bfloat16",
        help="8-bit integers, with ranges from samples in a folder (.npy, .npz); weights alone; or bfloat16.",
    )
    return into(_method(_keep(command)))


def quantization(quantize: str | None, method: str, keep: tuple[str, ...]) -> Quantization | None:
    """What the options say: 8 bits with ranges from a folder, or of weights alone, or bfloat16; or nothing."""
    from tensorlang.networks.quantization import Quantization

    if quantize is None:
        if keep:
            raise ArgumentError("--keep names nodes that stay in floats where others are quantized: give --quantize")
        return None
    return Quantization(quantize, keep=keep) if quantize in _WORDS else Quantization("int8", quantize, method, keep)


def read_model(
    model: str, shapes: tuple[str, ...], known: tuple[str, ...], how: Quantization | None, target: str | None = None
) -> Network:
    """A model from its file, in fewer bits where that is asked for."""
    from tensorlang.networks import from_onnx
    from tensorlang.target import parse

    network = from_onnx(model, read_shapes(shapes), read_known(known))
    return network if how is None else how.applied(network, parse(target), None)


@click.command("quantize")
@click.argument("model", metavar="MODEL.onnx")
@click.option("--data", required=True, metavar="FOLDER", help="Samples of inputs: .npy, or .npz by names of inputs.")
@_method
@_keep
@click.option(
    "--to",
    type=click.Choice(("int8", "weights", "bfloat16")),
    default="int8",
    show_default=True,
    help="int8: products of integers; weights: of 8 bits alone, or bfloat16; samples show what that loses.",
)
@click.option("--shape", "shapes", multiple=True, metavar="NAME=1,3,224,224", help="The shape of an open input.")
@known_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def quantize(
    model: str,
    data: str,
    method: str,
    keep: tuple[str, ...],
    to: str,
    shapes: tuple[str, ...],
    known: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show how far each layer of MODEL.onnx in fewer bits is from floats, the worst first.

    Ratios of signal to noise are in dB, 20 for an error of a tenth, 40 for a hundredth: of a layer alone, for the
    inputs that it has in floats, and with the noise of all before it. Nodes with the lowest are worth a --keep.
    `tensorlang compile --quantize` and `tensorlang run --quantize` take the same options.
    """
    from tensorlang.networks import from_onnx
    from tensorlang.networks.quantizing.errors import layer_errors
    from tensorlang.target import parse

    exact = from_onnx(model, read_shapes(shapes), read_known(known))
    how = quantization(data if to == "int8" else to, method, keep)
    assert how is not None
    made = how.applied(exact, parse(None), None)
    rows = layer_errors(exact, made, data)
    sizes = [sum(array.nbytes for array in network.weights.values()) for network in (made, exact)]
    if as_json:
        click.echo(json.dumps(_as_json(exact.name, rows, sizes), indent=2))
        return
    click.echo(f"{exact.name}: weights {sizes[0] / 1e6:.1f} MB, in floats {sizes[1] / 1e6:.1f} MB")
    click.echo(f"{'own dB':>8}{'dB':>8}{'greatest':>11}  layer")
    for row in rows:
        click.echo(f"{row.own:>8.1f}{row.snr:>8.1f}{row.greatest:>11.1e}  {printable(row.node)} ({row.op})")


def _as_json(name: str, rows: tuple[LayerError, ...], sizes: list[int]) -> dict[str, Any]:
    layers = [
        {"node": r.node, "op": r.op, "own_db": _finite(r.own), "db": _finite(r.snr), "greatest": r.greatest}
        for r in rows
    ]
    return {"name": name, "weights_bytes": sizes[0], "weights_bytes_in_floats": sizes[1], "layers": layers}


def _finite(ratio: float) -> float | None:
    """A ratio as JSON has it: none where there is no noise, or no signal."""
    return ratio if abs(ratio) < float("inf") else None
