"""`tensorlang compile`: a model of a network as a library for C."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import click

from tensorlang.cli.export import words
from tensorlang.cli.inspect import known_option, read_known
from tensorlang.cli.models import compiled_model, inputs_of, numerics_option
from tensorlang.cli.network_tuning import STORE, tune_compiled
from tensorlang.cli.quantize import quantization, quantize_options, read_model
from tensorlang.files import is_folder


@click.command("compile")
@click.argument("model", metavar="MODEL.onnx")
@click.option("-o", "--out", "out", required=True, help="A folder (out/), or the files' path without their ending.")
@click.option("--shape", "shapes", multiple=True, metavar="NAME=1,3,224,224", help="The shape of an open input.")
@known_option
@click.option("--log", type=click.Path(dir_okay=False, exists=True), help="Take the best records of this log.")
@click.option("--target", help="The CPU: 'llvm -mcpu=haswell' (default: this machine's).")
@click.option("--formats", default="so,o,a,h", show_default=True, help="Which files to write; also cmake, c.")
@click.option("--threads", default="host", show_default=True, help="Who runs parallel loops: host, openmp, serial.")
@click.option("--faces", default="c", show_default=True, help="Interfaces: c, tvm_ffi, xla, onnxruntime.")
@click.option("--isas", default="", metavar="A,B,...", help="CPUs to compile for: x86-64-v4,x86-64-v3,x86-64-v2.")
@click.option("--embed", is_flag=True, help="Put the weights into the library, not into a file beside it.")
@click.option(
    "--input", "files", multiple=True, metavar="[NAME=]FILE.npy", help="An input of the test; random without."
)
@numerics_option
@quantize_options
@click.option(
    "--tune", "seconds", type=click.FloatRange(0, min_open=True), metavar="SECONDS", help="Tune the kernels before."
)
@click.option("--linker", help="cc, ld.lld or ziglang (default: the first that is there).")
def compile_model(
    model: str,
    out: str,
    shapes: tuple[str, ...],
    known: tuple[str, ...],
    log: str | None,
    target: str | None,
    formats: str,
    threads: str,
    faces: str,
    isas: str,
    embed: bool,
    files: tuple[str, ...],
    numerics: str,
    quantize: str | None,
    method: str,
    keep: tuple[str, ...],
    seconds: float | None,
    linker: str | None,
) -> None:
    """Compile MODEL.onnx to a library that C, and whatever calls C, can use without Python.

    The format c writes a program that runs the library on the inputs, and compares what it makes with what
    onnxruntime makes of them, or, with --quantize, with what is made of them here. --tune spends so many seconds on its
    kernels first, those that take most time before others; records go to --log, or to the default store.
    """
    from tensorlang.export.writing import NoLinker
    from tensorlang.networks.onnx.comparing import outputs_of

    network = read_model(model, shapes, known, quantization(quantize, method, keep), target)
    chosen, check = words(formats), None
    if "c" in chosen:
        check = list(inputs_of(network, files))
        if quantize is None:
            check += outputs_of(model, network, check, read_known(known))
    made = compiled_model(network, target, log, numerics=numerics)
    click.echo(str(made))
    if seconds is not None:
        tune_compiled(made, seconds, None, log or STORE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoLinker)  # what is printed says it, too
        files_made = made.export(
            _path(out, model), chosen, threads, words(faces), words(isas), embed=embed, check=check, linker=linker
        )
    click.echo(str(files_made))


def _path(out: str, model: str) -> Path:
    """Where the files go: in a folder they have the name of the model, as C can have it."""
    if not out.endswith("/") and not is_folder(out):
        return Path(out)
    name = re.sub(r"[^A-Za-z0-9_]", "_", Path(model).stem).lstrip("_0123456789") or "network"
    return Path(out) / name
