"""Where a scheduler is, which device is meant, and whether it may be talked to."""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError, MissingDependency, TensorlangError

SCHEME = "dask://"
DEVICE = "device"
"""The resource that every worker has once: it keeps measurements of one device apart."""


class ConnectionRefused(TensorlangError, ConnectionError):
    """A scheduler cannot be reached, or may not be."""


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files: the authority that signs everybody's certificates, our certificate, and its key."""

    ca_file: str
    cert: str
    key: str

    def __post_init__(self) -> None:
        for path in (self.ca_file, self.cert, self.key):
            if not Path(path).is_file():
                raise DefinitionError(f"no such file for TLS: {path}")


@dataclass(frozen=True, slots=True)
class Address:
    """`dask://host:port`, or `dask://host:port/NAME` for workers of that device alone."""

    host: str
    port: int
    device: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{SCHEME}{host}:{self.port}{f'/{self.device}' if self.device else ''}"

    def url(self, tls: Tls | None) -> str:
        """What Dask calls it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'tcp' if tls is None else 'tls'}://{host}:{self.port}"

    @property
    def resources(self) -> dict[str, float]:
        """What a worker must have."""
        return dict.fromkeys([DEVICE, *([self.device] if self.device else [])], 1.0)


def parse_address(text: str) -> Address:
    """Read an address; DefinitionError says how one is written."""
    found = re.fullmatch(r"dask://(\[[0-9a-fA-F:.]+\]|[^/:\[\]]+):(\d{1,5})(?:/([\w.-]+))?", text)
    if found is None or not 0 < int(found[2]) < 65536:
        raise DefinitionError(f"not an address: {text!r}; write dask://host:port, or dask://host:port/DEVICE")
    return Address(found[1].strip("[]"), int(found[2]), found[3] or "")


def named(address: Address, device: str | None) -> Address:
    """The address with the name of a device; DefinitionError for a name that cannot be one."""
    if device is None:
        return address
    if device == DEVICE or not re.fullmatch(r"[\w.-]+", device):
        raise DefinitionError(f"a device is named by letters, digits, `_`, `.` and `-`, and not {DEVICE!r}: {device!r}")
    if address.device not in ("", device):
        raise DefinitionError(f"{address} names another device than --device {device}")
    return replace(address, device=device)


def tls_of(ca_file: str | None, cert: str | None, key: str | None) -> Tls | None:
    """All three files, or none; DefinitionError when some are missing."""
    given = {"tls_ca_file": ca_file, "tls_cert": cert, "tls_key": key}
    if ca_file and cert and key:
        return Tls(ca_file, cert, key)
    if any(given.values()):
        missing = [name for name, value in given.items() if not value]
        options = ", ".join(f"--{name.replace('_', '-')}" for name in missing)
        raise DefinitionError(f"TLS needs three files; give {' and '.join(missing)} as well ({options})")
    return None


def require_private(address: Address, tls: Tls | None) -> None:
    """Raise ConnectionRefused unless the connection is encrypted or stays on this machine."""
    if tls is not None:
        return
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)}
    except OSError as error:
        raise ConnectionRefused(f"{address}: no such host ({error})") from error
    if not all(ipaddress.ip_address(ip.partition("%")[0]).is_loopback for ip in found):
        raise ConnectionRefused(
            f"{address} is another machine, and the connection is not encrypted: a Dask scheduler runs whatever "
            "anybody sends to it. Give tls_ca_file, tls_cert and tls_key (--tls-ca-file, --tls-cert and --tls-key), or "
            "forward the port through ssh and use dask://localhost:PORT"
        )


def require_distributed() -> Any:
    """The module dask.distributed; MissingDependency tells how to install it."""
    try:
        import distributed
    except ImportError as error:
        raise MissingDependency("a Dask cluster needs dask.distributed: pip install 'tensorlang[cluster]'") from error
    return distributed


def security_of(tls: Tls | None) -> Any:
    """Dask's form of the TLS files; None for none."""
    if tls is None:
        return None
    roles = {f"tls_{role}_{part}": value for role in ("client", "worker") for part, value in _pair(tls)}
    return require_distributed().Security(tls_ca_file=tls.ca_file, require_encryption=True, **roles)


def _pair(tls: Tls) -> tuple[tuple[str, str], ...]:
    return (("cert", tls.cert), ("key", tls.key))
