"""`tensorlang check`: prove the schedules of a file, and explain them."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from tensorlang.cli.arguments import parse_arguments
from tensorlang.errors import ScheduleError
from tensorlang.files import is_file, writing


@click.command()
@click.argument("file", metavar="FILE.py[:FUNCTION]|NAME.json")
@click.option("--args", "arguments", metavar="A,B,...", help="Arguments of the function.")
@click.option("--sizes", default="", help="Numbers for symbolic sizes, n=100,m=30: counts and bytes need them.")
@click.option("--svg", "svg_file", type=click.Path(dir_okay=False), help="Draw the iteration space to this file.")
@click.option("--statement", help="The statement to draw (default: the last one that has two axes).")
@click.option("--axes", default="", help="The two axes to draw, t,i (default: the statement's first two).")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def check(
    ctx: click.Context,
    file: str,
    arguments: str | None,
    sizes: str,
    svg_file: str | None,
    statement: str | None,
    axes: str,
    as_json: bool,
) -> None:
    """Prove the schedules of a file and explain them; exit code 1 for an illegal one.

    FUNCTION returns a schedule, several, or the tensors of a program (whose default schedule is meant). Without it, the
    schedules that the file holds under names of its own are checked. For the .json or the library of an exported kernel
    its schedules are proven again, from what it says of itself.
    """
    try:
        exported = not file.endswith(".py") and is_file(file)
        found = _exported(file) if exported else _schedules(file, parse_arguments(arguments))
    except ScheduleError as error:
        click.echo(json.dumps({"legal": False, **_refusal(error)}, indent=2) if as_json else str(error))
        ctx.exit(1)
    known = _sizes(sizes, {n for _, s in found for n in s.state.sizes})
    given = [{n: v for n, v in known.items() if n in s.state.sizes} for _, s in found]
    explained = [(name, s.explain(sizes=own)) for (name, s), own in zip(found, given, strict=True)]
    if svg_file is not None:
        shown = [a for a in axes.split(",") if a]
        try:
            text = found[-1][1].explain(as_="svg", statement=statement, axes=shown, sizes=given[-1])
        except ScheduleError as error:
            raise click.UsageError(error.why) from None
        with writing(svg_file):
            Path(svg_file).write_text(text, encoding="utf-8")
    if as_json:
        click.echo(json.dumps({"legal": True, "schedules": {n: e.to_json() for n, e in explained}}, indent=2))
        return
    for name, explanation in explained:
        click.echo(f"{name}: legal\n{explanation}")


def _exported(file: str) -> list[tuple[str, Any]]:
    """The schedules of an exported kernel, by their targets."""
    from tensorlang.export.loading import prove

    return [(proof.name, proof.schedule) for proof in prove(Path(file))]


def _refusal(error: ScheduleError) -> dict[str, Any]:
    steps, words = list(error.legal), list(error.advice)
    said = {"error": type(error).__name__, "asked": error.asked, "why": error.why}
    return {**said, "legal_steps": steps, "advice": words}


def _schedules(file: str, arguments: Sequence[Any]) -> list[tuple[str, Any]]:
    """The schedules that a file, or one function in it, makes."""
    from tensorlang.autotune.files import load_file, load_function
    from tensorlang.schedule import Schedule
    from tensorlang.te.operation import PlaceholderOp, Tensor

    if file.endswith(".py"):
        if arguments:
            raise click.UsageError(f"--args is for a function; name one, {file}:FUNCTION")
        names = vars(load_file(Path(file)))
        found = [(name, value) for name, value in names.items() if isinstance(value, Schedule)]
        if not found:
            raise click.UsageError(f"{file} holds no schedule; name a function that returns one, {file}:FUNCTION")
        return found
    made = load_function(file)(*arguments)
    name = file.rpartition(":")[2]
    several = list(made) if isinstance(made, list | tuple) else [made]
    schedules = [s for s in several if isinstance(s, Schedule)]
    if len(schedules) > 1:
        return [(f"{name}[{k}]", s) for k, s in enumerate(schedules)]
    if not schedules and not any(isinstance(t, Tensor) and not isinstance(t.op, PlaceholderOp) for t in several):
        raise click.UsageError(f"{file} must return a schedule or computed tensors, got {made!r}")
    return [(name, schedules[0] if schedules else _default(several))]


def _default(tensors: list[Any]) -> Any:
    """The default schedule of the tensors that a function returned."""
    from tensorlang.schedule import create_schedule
    from tensorlang.te.operation import PlaceholderOp

    return create_schedule([t for t in tensors if not isinstance(t.op, PlaceholderOp)])


def _sizes(text: str, there: Collection[str]) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        if not value.isdecimal():
            raise click.UsageError(f"--sizes takes n=100,m=30, got {part!r}")
        if name.strip() not in there:
            raise click.UsageError(
                f"{name.strip()} is no size of the program; there are {', '.join(sorted(there)) or 'none'}"
            )
        found[name.strip()] = int(value)
    return found
