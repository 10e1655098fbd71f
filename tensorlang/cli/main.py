"""The command `tensorlang` and its subcommands."""

from __future__ import annotations

import io
import sys

import click

from tensorlang.cli.bench import bench
from tensorlang.cli.check import check
from tensorlang.cli.compile import compile_model
from tensorlang.cli.explain import explain
from tensorlang.cli.export import export
from tensorlang.cli.inspect import inspect
from tensorlang.cli.log import log
from tensorlang.cli.profile import profile
from tensorlang.cli.quantize import quantize
from tensorlang.cli.report import report
from tensorlang.cli.run import run
from tensorlang.cli.show import asm, lower
from tensorlang.cli.target import target
from tensorlang.cli.tune import tune
from tensorlang.cli.worker import worker
from tensorlang.errors import InternalError, ScheduleError, TensorlangError
from tensorlang.version import VERSION


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="tensorlang")
def tensorlang() -> None:
    """Tune, benchmark and inspect tensor kernels, and run whole networks."""


for command in (
    *(tune, bench, check, compile_model, explain, export, inspect),
    *(log, profile, quantize, report, run, target, worker),
    *(asm, lower),
):
    tensorlang.add_command(command)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; mistakes of the user end with one line and exit code 2."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # names of files may hold what an encoding lacks
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = tensorlang.main(arguments, standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)  # click returns what `ctx.exit` was given
    except click.UsageError as error:
        if error.message.startswith("Usage: "):  # a group without a command: click gives its help for a message
            click.echo(error.message, err=True)
            sys.exit(2)
        _fail(f"{error.format_message()}{f' (see {error.ctx.command_path} --help)' if error.ctx else ''}", 2)
    except click.ClickException as error:
        _fail(error.format_message(), 2)
    except (KeyboardInterrupt, click.Abort):
        _fail("stopped", 130)
    except MemoryError as error:
        _fail(f"this machine has not enough memory: {error}", 1)
    except InternalError as error:
        _fail(str(error), 1)
    except TensorlangError as error:
        _fail(str(error) if isinstance(error, ScheduleError) else " ".join(str(error).split()), 2)
    except OSError as error:  # of the output, as on a full disk
        _fail(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}", 1)


def _fail(text: str, code: int) -> None:
    click.echo(f"error: {text}", err=True)
    sys.exit(code)
