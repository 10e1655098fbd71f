"""Options that several commands share, and how their texts are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from tensorlang.errors import DefinitionError

Argument = int | float | str
F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_LOG = "tensorlang-tuning.jsonl"
"""Where `tune` writes, and `bench` reads."""
UNLIMITED = 1_000_000  # trials, when only the time is bounded


def parse_arguments(text: str | None) -> tuple[Argument, ...]:
    """Read `37,53,float32` as integers, floats and words."""
    if text is None or not text.strip():
        return ()
    return tuple(_argument(part.strip()) for part in text.split(","))


def _argument(text: str) -> Argument:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    if not text:
        raise DefinitionError("an argument is empty; write for instance 37,53,61")
    return text


def parse_shape(text: str | None) -> tuple[int, ...]:
    """Read `1024,1024,1024` (or with x between); DefinitionError names what is no positive integer."""
    parts = [] if text is None else text.replace("x", ",").split(",")
    for part in parts:
        if not part.strip().isdecimal() or int(part) < 1:
            raise DefinitionError(f"bad shape {text!r}: {part.strip()!r} is not a positive integer")
    return tuple(int(part) for part in parts)


def task_options(function: F) -> F:
    """The argument and options that say what to run: operator or file, sizes, dtype, options, target, threads."""
    for decorate in reversed(
        (
            click.argument("operator"),
            click.option(
                "--shape", metavar="M,N,K", help="Sizes of a library operator (asked for by name if left out)."
            ),
            click.option("--args", "arguments", metavar="A,B,...", help="Arguments of your own function."),
            click.option("--dtype", metavar="DTYPE", help="Element type of a library operator (default: float32)."),
            click.option(
                "--option",
                "options",
                multiple=True,
                metavar="NAME=VALUE",
                help="An option of a library operator: stride=2, padding=1,2 (left out: SAME); once for each.",
            ),
            click.option(
                "--target",
                metavar="TARGET",
                default="llvm",
                show_default=True,
                help="llvm is this CPU; opencl, cuda, or with options: 'opencl -device=NAME'.",
            ),
            click.option(
                "--threads", type=click.IntRange(1), help="Threads of the kernel on a CPU (default: all cores)."
            ),
        )
    ):
        function = decorate(function)
    return function


def is_own(operator: str) -> bool:
    """Whether an operator is a function in a file, not the library's."""
    return ":" in operator or operator.endswith(".py")


def make_task(
    operator: str,
    shape: str | None,
    arguments: str | None,
    dtype: str | None,
    options: Sequence[str],
    target: Any,
    threads: int | None,
) -> Any:
    """The task that the options describe; DefinitionError or TargetError when they do not fit."""
    from tensorlang.autotune import create_task

    check_task_options(operator, shape, arguments, dtype, options, target, threads)
    if is_own(operator):
        return create_task(operator, parse_arguments(arguments), target, threads)
    try:
        return create_task(operator, (*parse_shape(shape), dtype or "float32", *options), target, threads)
    except DefinitionError as error:
        raise DefinitionError(error.message) from None  # the place is in our library, not in the user's file


def check_task_options(
    operator: str,
    shape: str | None,
    arguments: str | None,
    dtype: str | None,
    options: Sequence[str],
    target: Any,
    threads: int | None,
) -> None:
    """Raise DefinitionError for options that are for another kind of operator; warn of too many threads."""
    own = is_own(operator)
    if own and (shape is not None or dtype is not None or options):
        raise DefinitionError("--shape, --dtype and --option are for library operators; give your function its --args")
    unnamed = next((option for option in options if "=" not in option), None)
    if unnamed is not None:
        raise DefinitionError(f"--option takes NAME=VALUE, as in stride=2, got {unnamed!r}")
    if not own and arguments is not None:
        raise DefinitionError(f"--args is for your own function; give {operator} its --shape and --dtype")
    if threads is not None and isinstance(target, str):
        _warn_of_threads(threads)


def _warn_of_threads(threads: int) -> None:
    """Say that there are more threads than CPUs here."""
    from tensorlang.runtime.threads import available_cores

    if threads > available_cores():
        text = f"warning: --threads {threads}, and this process may use {available_cores()} CPUs: threads will wait"
        click.echo(f"{text} for one another, and times say little", err=True)
