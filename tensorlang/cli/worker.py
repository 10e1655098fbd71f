"""`tensorlang worker`: lend this machine's device to tuners of a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def tls_options(function: F) -> F:
    """The three files of an encrypted connection."""
    for decorate in (
        click.option("--tls-key", metavar="FILE", help="PEM file of the key of --tls-cert."),
        click.option("--tls-cert", metavar="FILE", help="PEM file of this side's certificate."),
        click.option("--tls-ca-file", metavar="FILE", help="PEM file of the authority that signed all certificates."),
    ):
        function = decorate(function)
    return function


@click.command()
@click.argument("scheduler")
@click.option("--device", metavar="NAME", help="Name of the device: tuners ask for it as dask://host:port/NAME.")
@click.option("--threads", type=click.IntRange(1), help="Most threads of kernels (default: the CPUs we may use).")
@tls_options
def worker(
    scheduler: str,
    device: str | None,
    threads: int | None,
    tls_ca_file: str | None,
    tls_cert: str | None,
    tls_key: str | None,
) -> None:
    """Measure candidates for tuners, by the scheduler at SCHEDULER: dask://host:port.

    Candidates run one at a time, in processes of their own. Start one worker for every device; a scheduler is started
    by `dask scheduler --port PORT`. Ends when the scheduler does, or at Ctrl-C.
    """
    from tensorlang.autotune.cluster.address import named, parse_address, tls_of
    from tensorlang.autotune.cluster.worker import serve

    address = named(parse_address(scheduler), device)

    def ready() -> None:
        click.echo(f"measuring for {address}; stop with Ctrl-C", err=True)

    serve(address, threads, tls_of(tls_ca_file, tls_cert, tls_key), ready)
