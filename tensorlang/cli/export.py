"""`tensorlang export`: write a function's kernel as a library for C."""

from __future__ import annotations

import warnings
from typing import Any

import click

from tensorlang.cli.arguments import parse_arguments
from tensorlang.errors import DefinitionError


@click.command()
@click.argument("function", metavar="FILE.py:FUNCTION")
@click.option("--args", "arguments", metavar="A,B,...", help="Arguments of the function.")
@click.option("-o", "--out", "path", required=True, help="Path of the files without their ending: out/layer.")
@click.option("--log", type=click.Path(dir_okay=False), help="Take the best record of this log.")
@click.option("--target", default="llvm", show_default=True, help="The CPU: 'llvm -mcpu=haswell'.")
@click.option("--formats", default="so,o,a,h", show_default=True, help="Which files to write.")
@click.option("--threads", default="host", show_default=True, help="Who runs parallel loops: host, openmp, serial.")
@click.option("--faces", default="c", show_default=True, help="Interfaces: c, tvm_ffi, xla, onnxruntime.")
@click.option("--isas", default="", metavar="A,B,...", help="CPUs to compile for: x86-64-v4,x86-64-v3,x86-64-v2.")
@click.option("--linker", help="cc, ld.lld or ziglang (default: the first that is there).")
def export(
    function: str,
    arguments: str | None,
    path: str,
    log: str | None,
    target: str,
    formats: str,
    threads: str,
    faces: str,
    isas: str,
    linker: str | None,
) -> None:
    """Export the kernel of a function to files that C, and whatever calls C, can use.

    FUNCTION returns its tensors, inputs first, or a schedule and its tensors. Tensors get the best record of the log,
    if one is given, else the library's schedule.
    """
    from tensorlang.export.writing import NoLinker

    kernel = _kernel(function, parse_arguments(arguments), log, target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoLinker)  # what is printed says it, too
        made = kernel.export(
            path, formats=words(formats), threads=threads, faces=words(faces), isas=words(isas), linker=linker
        )
    click.echo(str(made))


def words(text: str) -> tuple[str, ...]:
    """Words between commas."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _kernel(function: str, arguments: tuple[Any, ...], log: str | None, target: str) -> Any:
    import tensorlang
    from tensorlang import autotune
    from tensorlang.autotune.files import load_function
    from tensorlang.schedule import Schedule

    made = load_function(function)(*arguments)
    match made:
        case [Schedule() as s, *rest]:
            args = rest[0] if len(rest) == 1 and isinstance(rest[0], list | tuple) else rest
            if log is not None:
                raise DefinitionError(f"{function} returns a schedule of its own; --log is for tensors")
            return tensorlang.build(s, list(args), target=target)
        case list() | tuple() if made:
            if log is None:
                return tensorlang.build(list(made), schedule="default", target=target)
            with autotune.apply_history_best(log):
                return tensorlang.build(list(made), schedule="best", target=target)
    raise DefinitionError(f"{function} returns its tensors, inputs first, or a schedule and its tensors; got {made!r}")
