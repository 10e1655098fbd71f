"""`tensorlang lower` and `tensorlang asm`: the loops and the machine code of a function's program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from tensorlang.cli.arguments import parse_arguments

if TYPE_CHECKING:
    from tensorlang.schedule import Schedule
    from tensorlang.te.operation import Tensor


def kernel_of(file: str, arguments: str | None, target: Any) -> Any:
    """The kernel of what `FILE.py:FUNCTION` returns: with its schedule, or the library's where it has none."""
    return build_of(*returned(file, arguments), target)


def returned(file: str, arguments: str | None) -> tuple[Schedule | None, list[Tensor]]:
    """What one call of `FILE.py:FUNCTION` returns: tensors, inputs first, and a schedule of them where it has one.

    UsageError for anything else.
    """
    from tensorlang.autotune.files import load_function
    from tensorlang.schedule import Schedule
    from tensorlang.te.operation import PlaceholderOp, Tensor

    made = load_function(file)(*parse_arguments(arguments))
    several = [one for part in (made if isinstance(made, list | tuple) else [made]) for one in _flat(part)]
    schedules = [one for one in several if isinstance(one, Schedule)]
    tensors = [one for one in several if isinstance(one, Tensor)]
    computed = any(not isinstance(t.op, PlaceholderOp) for t in tensors)
    if len(schedules) > 1 or not computed or len(schedules) + len(tensors) < len(several):
        wanted = "tensors, inputs first, or a schedule and its tensors, as in `return s, [A, B, C]`"
        raise click.UsageError(f"{file} must return {wanted}, got {made!r}")
    return (schedules[0] if schedules else None), tensors


def build_of(schedule: Schedule | None, tensors: Sequence[Tensor], target: Any) -> Any:
    """The kernel of tensors with a schedule, or with the library's."""
    import tensorlang

    if schedule is not None:
        return tensorlang.build(schedule, list(tensors), target=target)
    return tensorlang.build(list(tensors), schedule="default", target=target)


def _flat(part: Any) -> list[Any]:
    return list(part) if isinstance(part, list | tuple) else [part]


FILE = click.argument("file", metavar="FILE.py:FUNCTION")
ARGUMENTS = click.option("--args", "arguments", metavar="A,B,...", help="Arguments of the function.")
TARGET = click.option("--target", metavar="TARGET", default="llvm", show_default=True, help="As in `tensorlang tune`.")


@click.command()
@FILE
@ARGUMENTS
@TARGET
def lower(file: str, arguments: str | None, target: str) -> None:
    """Print the loops of a program.

    FUNCTION returns tensors, inputs first, which the library schedules, or a schedule and its tensors.
    """
    click.echo(kernel_of(file, arguments, target).source("loops").rstrip())


@click.command()
@FILE
@ARGUMENTS
@TARGET
@click.option("--hot", is_flag=True, help="Print the hottest loop alone.")
def asm(file: str, arguments: str | None, target: str, hot: bool) -> None:
    """Print the machine code of a program, its hottest loop marked by `>`.

    FUNCTION returns tensors, inputs first, which the library schedules, or a schedule and its tensors.
    """
    from tensorlang.runtime.page import hot_loop

    kernel = kernel_of(file, arguments, target)
    if "asm" not in kernel.source_forms:
        raise click.UsageError(f"{target} has no assembly; it shows {', '.join(kernel.source_forms)}")
    text = kernel.source("asm")
    marked = hot_loop(text)
    for n, line in enumerate(text.rstrip().split("\n")):
        if n in marked or not hot:
            click.echo(f"{'> ' if n in marked and not hot else '  ' if not hot else ''}{line}")
